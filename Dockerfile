# vonet on a CPU. Build and run the demo, whose results then lie in out/demo:
#   docker build --tag vonet .
#   docker run --rm --volume "$PWD/out:/out" vonet
# Any other command: docker run --rm --volume "$PWD:/out" vonet segment clip.mp4
# By default pip brings torch with CUDA, several gigabytes. For the smaller build name torch's index for CPUs:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=... --tag vonet .
FROM python:3.11-slim
ARG PIP_EXTRA_INDEX_URL=""
COPY pyproject.toml constraints.txt README.md LICENSE /vonet/
COPY src /vonet/src
RUN PIP_EXTRA_INDEX_URL="$PIP_EXTRA_INDEX_URL" \
    pip install --no-cache-dir --constraint /vonet/constraints.txt /vonet
WORKDIR /out
ENTRYPOINT ["vonet"]
CMD ["demo"]
