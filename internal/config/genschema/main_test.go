package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/srv6"
)

const root = "../../.."

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	t.Chdir(root)
	committed, err := os.ReadFile("docs/reference/culvert.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	made, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, committed) {
		t.Error("docs/reference/culvert.schema.json is not up to date: make generate")
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(made))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaID, document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(schemaID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

func TestSchemaTakes(t *testing.T) {
	s := compile(t)
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, string(data)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, smfs := range []string{"any", "[any]", "[192.0.2.20/32]"} {
		if err := validate(t, s, "upf: {smfs: "+smfs+"}"); err != nil {
			t.Errorf("smfs: %s: %v", smfs, err)
		}
	}
	for _, row := range srv6.Table() {
		if err := validate(t, s, row.Example); err != nil {
			t.Errorf("example of %s: %v", row.Name, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := compile(t)
	for _, text := range []string{
		"sid: []", "sids: {}", "sids: [{behavior: End.Z}]", "sids: [{table: main}]", "sids: [{table: -1}]",
		"sids: [{flavors: [PSB]}]", "steering: [{vlans: [70000]}]", "interfaces: [{mode: fast}]",
		"interfaces: [{external: true}]", "log: {level: loud}", "sids: [{pdu_type: ipx}]", "encapsulation: {hop_limit: 256}",
		"upf: {smfs: all}",
	} {
		if err := validate(t, s, text); err == nil {
			t.Errorf("%s: taken", text)
		}
	}
}

// Whoever types a configuration in an editor reads the descriptions.
func TestSchemaDescribes(t *testing.T) {
	compile(t)
	data, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	var top struct {
		Properties map[string]struct{ Description string }
		Defs       map[string]struct {
			Properties map[string]struct{ Description string }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	if d := top.Defs["LocalSID"].Properties["source_prefix_length"].Description; !strings.Contains(d, "End.M.GTP4.E") {
		t.Errorf("source_prefix_length: %q", d)
	}
	if d := top.Properties["domain"].Description; !strings.Contains(d, "SR domain") {
		t.Errorf("domain: %q", d)
	}
}
