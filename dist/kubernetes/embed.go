// Package kubernetes holds the manifest and the chart, for programs that need a part of them.
package kubernetes

import "embed"

// Manifest is what `kubectl apply -f` takes: YAML documents.
//
//go:embed culvert.yaml
var Manifest string

// Chart is the folder that Helm takes.
//
//go:embed all:chart
var Chart embed.FS
