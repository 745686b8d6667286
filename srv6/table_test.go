package srv6_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/srv6"
)

func TestRowsAreInTheOrderOfTheNumbers(t *testing.T) {
	rows := srv6.Table()
	if len(rows) != int(srv6.HMGTP4D) {
		t.Fatalf("%d rows, want %d", len(rows), srv6.HMGTP4D)
	}
	for i, row := range rows {
		if row.Behavior != srv6.Behavior(i+1) {
			t.Errorf("row %d is of %v", i, row.Behavior)
		}
		got, ok := srv6.Lookup(row.Behavior)
		if !ok || got.Name != row.Name {
			t.Errorf("Lookup(%d) = %v, %v", row.Behavior, got.Name, ok)
		}
		if row.Headend != strings.HasPrefix(row.Name, "H.") {
			t.Errorf("%s: headend is %v", row.Name, row.Headend)
		}
	}
	for _, b := range []srv6.Behavior{srv6.BehaviorNone, srv6.HMGTP4D + 1, 255} {
		if row, ok := srv6.Lookup(b); ok {
			t.Errorf("Lookup(%d) found %s", b, row.Name)
		}
	}
}

// A parameter that LocalSID has and the list lacks would never be refused.
func TestParametersAreTheFieldsOfLocalSID(t *testing.T) {
	var want []string
	typ := reflect.TypeFor[srv6.LocalSID]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if !slices.Contains([]string{"sid", "behavior", "flavors", "-"}, name) {
			want = append(want, name)
		}
	}
	var got []string
	for _, p := range srv6.Parameters() {
		got = append(got, p.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("parameters are %v, LocalSID's fields %v", got, want)
	}
	for _, row := range srv6.Table() {
		if row.Headend {
			continue
		}
		for _, name := range slices.Concat(row.Required, row.OneOf, row.Optional) {
			if !slices.Contains(got, name) {
				t.Errorf("%s names %q, which is no parameter", row.Name, name)
			}
		}
	}
}

func TestExamplesAreValid(t *testing.T) {
	for _, row := range srv6.Table() {
		var c config.Config
		if err := yaml.UnmarshalStrict([]byte(row.Example), &c); err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		var errs []srv6.FieldError
		found := false
		for _, s := range c.SIDs {
			found = found || s.Behavior == row.Behavior
			errs = append(errs, s.Validate()...)
		}
		for _, p := range c.Policies {
			found = found || p.Behavior == row.Behavior
			errs = append(errs, p.Validate()...)
		}
		for _, s := range c.Steering {
			found = found || s.GTP4D != nil && row.Behavior == srv6.HMGTP4D
			errs = append(errs, s.Validate()...)
		}
		if !found || len(errs) > 0 {
			t.Errorf("%s: example shows it: %v, errors: %v", row.Name, found, errs)
		}
	}
}

func TestCodepoints(t *testing.T) {
	type flavors = []srv6.Flavor
	for _, tt := range []struct {
		behavior srv6.Behavior
		flavors  flavors
		want     uint16 // 0: none
	}{
		{srv6.End, nil, 1},
		{srv6.End, flavors{srv6.PSP}, 2},
		{srv6.End, flavors{srv6.USP}, 3},
		{srv6.End, flavors{srv6.PSP, srv6.USP}, 4},
		{srv6.EndX, nil, 5},
		{srv6.EndT, flavors{srv6.USP, srv6.PSP}, 12},
		{srv6.EndB6Encaps, nil, 14},
		{srv6.EndDX6, nil, 16},
		{srv6.EndDX4, nil, 17},
		{srv6.EndDT6, nil, 18},
		{srv6.EndDT4, nil, 19},
		{srv6.EndDT46, nil, 20},
		{srv6.EndDX2, nil, 21},
		{srv6.EndB6EncapsRed, nil, 27},
		{srv6.End, flavors{srv6.USD}, 28},
		{srv6.End, flavors{srv6.PSP, srv6.USD}, 29},
		{srv6.End, flavors{srv6.USP, srv6.USD}, 30},
		{srv6.EndX, flavors{srv6.PSP, srv6.USP, srv6.USD}, 35},
		{srv6.EndT, flavors{srv6.USD}, 36},
		{srv6.EndMAP, nil, 40},
		{srv6.EndLimit, nil, 41},
		{srv6.End, flavors{srv6.NextCSID}, 43},
		{srv6.End, flavors{srv6.NextCSID, srv6.PSP, srv6.USP, srv6.USD}, 50},
		{srv6.EndX, flavors{srv6.NextCSID, srv6.PSP}, 53},
		{srv6.EndT, flavors{srv6.NextCSID, srv6.USD}, 89},
		{srv6.EndDX6, flavors{srv6.NextCSID}, 60},
		{srv6.EndDT46, flavors{srv6.NextCSID}, 64},
		{srv6.EndDX2, flavors{srv6.NextCSID}, 65},
		{srv6.EndB6Encaps, flavors{srv6.NextCSID}, 93},
		{srv6.EndB6EncapsRed, flavors{srv6.NextCSID}, 94},
		{srv6.EndMGTP6D, nil, 69},
		{srv6.EndMGTP6DDi, nil, 70},
		{srv6.EndMGTP6E, nil, 71},
		{srv6.EndMGTP4E, nil, 72},
		{srv6.HEncaps, nil, 0},
		{srv6.HMGTP4D, nil, 0},
		{srv6.EndDT4, flavors{srv6.PSP}, 0},
		{srv6.EndMAP, flavors{srv6.NextCSID}, 0},
		{srv6.EndLimit, flavors{srv6.USD}, 0},
		{srv6.End, flavors{16}, 0},
		{srv6.BehaviorNone, nil, 0},
	} {
		got, ok := srv6.Codepoint(tt.behavior, tt.flavors...)
		if got != tt.want && ok || ok != (tt.want != 0) {
			t.Errorf("Codepoint(%v, %v) = %d, %v, want %d", tt.behavior, tt.flavors, got, ok, tt.want)
		}
	}
}

// Two flavored behaviours must not share a number.
func TestCodepointsAreUnique(t *testing.T) {
	seen := map[uint16]string{}
	for _, row := range srv6.Table() {
		for set := range 1 << len(srv6.Flavors()) {
			var flavors []srv6.Flavor
			for i, f := range srv6.Flavors() {
				if set>>i&1 == 1 {
					flavors = append(flavors, f)
				}
			}
			n, ok := srv6.Codepoint(row.Behavior, flavors...)
			if !ok {
				continue
			}
			if seen[n] != "" {
				t.Errorf("%d is of %s and %s %v", n, seen[n], row.Name, flavors)
			}
			seen[n] = row.Name
		}
	}
	// RFC 8986: 12 + 12 flavored and 8 more; RFC 9800: 24 and 8; RFC 9433: 6.
	if len(seen) != 70 {
		t.Errorf("%d codepoints, want 70", len(seen))
	}
}
