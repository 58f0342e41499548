# syntax=docker/dockerfile:1
# A static binary in an image without a shell. Build: docker build --build-arg VERSION=1.2.3 --build-arg COMMIT=$(git rev-parse HEAD) -t outbox-relay .

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /out/outbox-relay ./cmd/outbox-relay
# Folders of the final image: the checkpoint's, and one for temporary files.
RUN mkdir -p /out/lib /out/tmp && chmod 1777 /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/outbox-relay /usr/local/bin/
COPY --from=build /out/tmp /tmp
COPY --from=build --chown=65532:65532 /out/lib /var/lib/outbox-relay
USER 65532:65532
WORKDIR /var/lib/outbox-relay
# The checkpoint has to outlive the container, and a transaction larger than the buffer is spooled here.
VOLUME /var/lib/outbox-relay
EXPOSE 9733
# Asks the running relay over its own HTTP address, which it reads from the configuration: mount that at /etc/outbox-relay/outbox-relay.yaml,
# or name another place in OUTBOX_RELAY__CONFIG_FILE. It needs no shell.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/local/bin/outbox-relay", "status"]
ENTRYPOINT ["/usr/local/bin/outbox-relay"]
CMD ["run"]
