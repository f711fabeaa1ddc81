# CenterCLIP without torch: indexing, searching and serving on a CPU.
#
#   docker build -t centerclip .
#   docker run -v ~/Videos:/videos:ro -v centerclip:/data centerclip index /videos
#   docker run -v ~/Videos:/videos:ro -v centerclip:/data centerclip search "a dog on the beach"
#   docker run -v ~/Videos:/videos:ro -v centerclip:/data -p 8000:8000 centerclip    # the page; prints its address
#
# The index, the model and the server's token are kept in the volume.

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY recipes recipes
COPY src src
RUN python -m venv /opt/centerclip \
    && /opt/centerclip/bin/pip install --no-cache-dir --no-compile -c constraints.txt .

FROM python:3.12-slim
COPY --from=build /opt/centerclip /opt/centerclip
RUN useradd --create-home --uid 1000 centerclip \
    && install -d -o centerclip /data
ENV PATH=/opt/centerclip/bin:$PATH \
    CENTERCLIP_INDEX=/data/index \
    XDG_CACHE_HOME=/data/cache \
    XDG_CONFIG_HOME=/data/config
USER 1000
WORKDIR /home/centerclip
VOLUME /data
EXPOSE 8000
ENTRYPOINT ["centerclip"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000", "--no-open"]
