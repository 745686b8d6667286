// Genschema makes the JSON schema of the configuration file from the Go types:
//
//	go run ./internal/config/genschema > docs/reference/culvert.schema.json
//
// It is run in the repository's directory, since the fields' comments are the
// schema's descriptions.
package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

const (
	module   = "github.com/culvert-net/culvert"
	schemaID = "https://" + module + "/docs/reference/culvert.schema.json"
)

func main() {
	data, err := schema()
	if err == nil {
		_, err = os.Stdout.Write(data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func schema() ([]byte, error) {
	r := &jsonschema.Reflector{
		Mapper:         schemaOf,
		ExpandedStruct: true,
		// What is required depends on the rest: config.Validate says it.
		RequiredFromJSONSchemaTags: true,
	}
	for _, dir := range []string{"./internal/config", "./internal/srpolicy", "./internal/overlay", "./internal/slice", "./internal/session", "./internal/announce", "./internal/nat", "./srv6", "./gtpu"} {
		if err := r.AddGoComments(module, dir, jsonschema.WithFullComment()); err != nil {
			return nil, fmt.Errorf("comments of %s: %w", dir, err)
		}
	}
	s := r.Reflect(&config.Config{})
	s.ID = schemaID
	s.Title = "Culvert configuration"
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return append(data, '\n'), nil
}

// schemaOf are the types that are text, or have limits, in files.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[netip.Addr]():
		return &jsonschema.Schema{Type: "string", Examples: []any{"2001:db8::1"}}
	case reflect.TypeFor[netip.Prefix]():
		return &jsonschema.Schema{Type: "string", Examples: []any{"2001:db8::/32"}}
	case reflect.TypeFor[config.Senders]():
		prefix, anyone := schemaOf(reflect.TypeFor[netip.Prefix]()), &jsonschema.Schema{Const: "any"}
		list := &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{prefix, anyone}}}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{list, anyone}}
	case reflect.TypeFor[config.HostList]():
		list := &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Examples: []any{"ssh", "tcp/9418"}}}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{list, {Const: "any"}}}
	case reflect.TypeFor[srpolicy.Duration]():
		return &jsonschema.Schema{Type: "string", Examples: []any{"15ms", "800us"}}
	case reflect.TypeFor[config.CPUs]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string", Examples: []any{"0,2-3"}}, {Type: "integer", Minimum: "0"}}}
	case reflect.TypeFor[srv6.Behavior]():
		return choice(srv6.Behaviors())
	case reflect.TypeFor[srv6.Flavor]():
		return choice(srv6.Flavors())
	case reflect.TypeFor[srv6.PDUType]():
		return choice(srv6.PDUTypes())
	case reflect.TypeFor[srv6.ContainerType]():
		return choice(srv6.ContainerTypes())
	}
	switch t.Kind() {
	case reflect.Uint64:
		return &jsonschema.Schema{Type: "integer", Minimum: "0"}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		most := fmt.Sprint(uint64(1)<<t.Bits() - 1)
		return &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: json.Number(most)}
	}
	return nil
}

func choice[T fmt.Stringer](values []T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v.String())
	}
	return s
}
