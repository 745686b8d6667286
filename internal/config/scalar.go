package config

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scalar decodes strings, truth values and numbers. Config has no other kinds, which
// a test checks.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	into := v.Addr().Interface()
	switch v.Kind() {
	case reflect.String:
		switch {
		case n.Kind != yaml.ScalarNode:
			d.fail(n, path, "write one value", "must be text, is %s", describe(n))
		case n.Tag != "!!str":
			d.fail(n, path, d.asText(n, path), "must be text, is %s", describe(n))
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if n.Tag != "!!bool" || n.Decode(into) != nil {
			d.fail(n, path, truthFix(n.Value), "must be true or false, is %s", describe(n))
			v.SetBool(true)
		}
	case reflect.Float64:
		if n.Tag != "!!float" && n.Tag != "!!int" || n.Decode(into) != nil || math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			d.fail(n, path, "a number such as 0.5", "must be a number, is %s", describe(n))
		}
	case reflect.Int:
		if n.Tag != "!!int" || n.Decode(into) != nil {
			d.fail(n, path, "a whole number", "must be a whole number, is %s", describe(n))
		}
	default:
		d.number(n, v, path)
	}
}

// asText is the fix for a number or a truth value where a text has to be.
func (d *decoder) asText(n *yaml.Node, path string) string {
	isNumber, values := n.Tag == "!!int", valuesOf(d.in, d.name)
	switch {
	case isNumber && strings.HasSuffix(path, ".listen"): // which a port alone is not
		return "write " + quoted("127.0.0.1:"+n.Value)
	case isNumber && strings.HasSuffix(path, ".sd"): // six hexadecimal digits
		digits := strings.TrimPrefix(strings.ToLower(n.Value), "0x")
		return fmt.Sprintf("quote it: %q", strings.Repeat("0", max(0, 6-len(digits)))+digits)
	case isNumber && hostPath.MatchString(path):
		return "write " + serviceAt(n.Value)
	case len(values) > 0:
		return "one of: " + strings.Join(values, ", ")
	}
	return fmt.Sprintf("quote it: %q", n.Value)
}

// octal is how YAML 1.1 writes numbers of base 8, and people numbers of base 10.
var octal = regexp.MustCompile(`^0[0-9_]*[1-9]`)

// number decodes an unsigned number.
func (d *decoder) number(n *yaml.Node, v reflect.Value, path string) {
	most := uint64(1)<<v.Type().Bits() - 1
	value, err := strconv.ParseUint(n.Value, 0, 64)
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str" && err == nil && value <= most:
		d.fail(n, path, "write "+n.Value+" without quotes", "must be a number, is %s", describe(n))
		v.SetUint(value)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!float":
		text := ""
		if strings.HasSuffix(path, "asn") { // 1.10 is one
			text = n.Value
		}
		fix := d.wholeNumber(text, path, most)
		if whole, err := strconv.ParseFloat(n.Value, 64); err == nil && whole >= 0 && whole <= float64(most) && whole == math.Trunc(whole) {
			fix = fmt.Sprintf("write %.0f", whole)
		}
		d.fail(n, path, fix, "must be a whole number, is %s", describe(n))
		v.SetUint(1)
	case n.Kind != yaml.ScalarNode || n.Tag != "!!int":
		d.fail(n, path, d.wholeNumber(n.Value, path, most), "must be a number, is %s", describe(n))
		v.SetUint(1)
	case octal.MatchString(n.Value):
		d.fail(n, path, "write "+strings.TrimLeft(n.Value, "0"), "must not begin with 0, which makes it octal, is %s", describe(n))
		v.SetUint(1)
	case err == nil && value == 0 && strings.HasSuffix(path, ".weight"):
		d.fail(n, path, "a weight of at least 1, or remove what is to get no packets", "must not be 0")
		v.SetUint(1)
	case err == nil && value == 0 && isSST(path):
		d.fail(n, path, d.wholeNumber("", path, most), "must not be 0")
		v.SetUint(1)
	case err != nil || value > most:
		d.fail(n, path, d.wholeNumber("", path, most), "%s is out of range", n.Value)
		v.SetUint(1)
	default:
		if value == 0 {
			d.zeros = append(d.zeros, Error{Line: n.Line, Field: path})
		}
		v.SetUint(value)
	}
}

// truthFix returns the fix for a text that other versions of YAML take for a truth value.
func truthFix(text string) string {
	switch strings.ToLower(text) {
	case "yes", "on", "1":
		return "write true"
	case "no", "off", "0":
		return "write false"
	}
	return "true or false"
}
