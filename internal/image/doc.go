// Package image writes container images without an engine for containers: an
// OCI image layout (opencontainers/image-spec, image-layout.md) in a tar file, as
// `ctr images import`, `podman load` and `docker load` take it. The same files
// make the same image, byte for byte.
package image
