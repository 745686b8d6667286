// Package docs holds those documents that programs need too.
package docs

import _ "embed"

//go:generate ./figures/draw.sh

// Schema is the JSON schema of the configuration file.
//
//go:embed reference/culvert.schema.json
var Schema []byte
