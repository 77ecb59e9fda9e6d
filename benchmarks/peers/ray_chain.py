"""Three no-op deployments behind HTTP on Ray Serve: `python ray_chain.py PORT`; prints `ready` and serves."""

import sys
import time

import ray
from ray import serve


@serve.deployment(max_ongoing_requests=64)
class Third:
    async def __call__(self, data):
        return data


@serve.deployment(max_ongoing_requests=64)
class Second:
    def __init__(self, after):
        self.after = after

    async def __call__(self, data):
        return await self.after.remote(data)


@serve.deployment(max_ongoing_requests=64)
class First:
    def __init__(self, after):
        self.after = after

    async def __call__(self, request):
        return await self.after.remote(await request.body())


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"port": int(sys.argv[1])})
    serve.run(First.bind(Second.bind(Third.bind())), route_prefix="/run")
    print("ready", flush=True)
    while True:
        time.sleep(60)
