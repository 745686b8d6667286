// Package config is the configuration of culvert: the types of the YAML file, its
// parser, its defaults, its validation, and its JSON schema.
//
// A configuration takes these steps, whether it comes from the file or through the
// management API:
//
//  1. Decode refuses unknown fields, wrong types and duplicate keys;
//  2. SetDefaults fills in what is left out;
//  3. Validate checks each resource, and all of them together.
//
// No step stops at the first error: a configuration is refused as a whole, with every
// error, and each error names the line, the field and the fix. CheckInterfaces checks
// what depends on the machine, so that the other steps work on any machine.
//
// The package has no state, no locks and no goroutines.
//
// The JSON schema, docs/reference/culvert.schema.json, is made from the types.
package config

//go:generate sh -c "cd ../.. && go run ./internal/config/genschema > docs/reference/culvert.schema.json"
