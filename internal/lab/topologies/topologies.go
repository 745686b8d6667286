// Package topologies holds the laboratories' files: see internal/lab/topology.
package topologies

import "embed"

// Files are the topologies, each in NAME.yaml.
//
//go:embed *.yaml
var Files embed.FS
