package config_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/srv6"
)

// The examples are what people start from: each has to be accepted, and
// together they show every way to receive GTP-U.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	shown := map[srv6.Behavior]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := config.Load(file)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for _, s := range c.SIDs {
				shown[s.Behavior] = true
			}
		})
	}
	for _, b := range []srv6.Behavior{srv6.EndMGTP4E, srv6.EndMGTP6E, srv6.EndMGTP6D, srv6.EndMGTP6DDi, srv6.EndDT46, srv6.EndX} {
		if !shown[b] {
			t.Errorf("no example of %v", b)
		}
	}
}

// What the behaviour table shows for each behaviour can be read and, behind a
// little that it leaves out, is a configuration.
func TestBehaviorExamples(t *testing.T) {
	for _, row := range srv6.Table() {
		t.Run(row.Name, func(t *testing.T) {
			c, err := config.Decode([]byte(row.Example))
			if err != nil {
				t.Fatalf("%v", err)
			}
			if len(c.SIDs)+len(c.Steering)+len(c.Policies) == 0 {
				t.Error("the example configures nothing")
			}
			if c.Encapsulation.Source, err = srv6Source(); err != nil {
				t.Fatal(err)
			}
			c.Domain = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
			c.SetDefaults()
			if err := c.Validate(); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}
