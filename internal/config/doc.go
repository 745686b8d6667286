// Package config is what culvert can be told: the types of the YAML file, how
// it is read, its defaults, its validation, and its JSON schema.
//
// Everything that says what a node shall do takes one way through this
// package, whether it comes from the file or through the management API:
//
//	Decode       strict: unknown fields, wrong types and duplicate keys
//	SetDefaults  what is left out
//	Validate     what one resource, and all of them together, may say
//
// Nothing stops at the first error: a configuration is refused as a whole,
// with every reason there is, each with its line, its field and what mends it.
// What only this machine can answer (does the interface exist?) is apart, in
// CheckInterfaces, so that a file can be checked anywhere.
//
// The JSON schema, docs/reference/culvert.schema.json, is made from the types.
package config

//go:generate sh -c "cd ../.. && go run ./internal/config/genschema > docs/reference/culvert.schema.json"
