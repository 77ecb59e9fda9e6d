"""Write the photos that scikit-image and scikit-learn carry into a folder."""

import sys
from pathlib import Path

from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_images

folder = Path(sys.argv[1])
for name in ("chelsea", "coffee", "astronaut", "rocket"):
    Image.fromarray(getattr(data, name)()).save(folder / f"{name}.png")
for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
    Image.fromarray(pixels).save(folder / f"{name}.png")
