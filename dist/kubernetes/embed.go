// Package kubernetes holds the manifest, for programs that need a part of it.
package kubernetes

import _ "embed"

// Manifest is what `kubectl apply -f` takes: YAML documents.
//
//go:embed culvert.yaml
var Manifest string
