// Package kubernetes is what a cluster is given to have culvert as the network of
// its pods.
package kubernetes

import _ "embed"

// Manifest is culvert.yaml.
//
//go:embed culvert.yaml
var Manifest string

// Image is the name of the image in it.
const Image = "ghcr.io/culvert-net/culvert:latest"
