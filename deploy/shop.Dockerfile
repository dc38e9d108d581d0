# syntax=docker/dockerfile:1
# The image of the two services of examples/shop, for compose.yaml's profile shop.
#
#   docker build -f deploy/shop.Dockerfile -t cdc-relay-shop .
ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY go.mod go.sum go.work go.work.sum ./
COPY examples/shop ./examples/shop
COPY inbox ./inbox
COPY internal/kafkaclient ./internal/kafkaclient
COPY outbox ./outbox
# Modules of the workspace that are not here.
RUN sed -i '/^\t\.\/\(bench\|inbox\/test\|test\|tools\)/d' go.work
COPY scripts/notices.sh ./scripts/notices.sh
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w" -o /out/ ./examples/shop/order-service ./examples/shop/notification-service
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    bash scripts/notices.sh ./examples/shop/order-service ./examples/shop/notification-service >/out/THIRD-PARTY-NOTICES

FROM scratch
COPY --from=build /out/order-service /out/notification-service /usr/local/bin/
COPY --from=build /out/THIRD-PARTY-NOTICES /THIRD-PARTY-NOTICES
COPY LICENSE /LICENSE
ENV PATH=/usr/local/bin
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
