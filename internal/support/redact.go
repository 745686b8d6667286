package support

import (
	"reflect"
	"regexp"
	"slices"
)

// Values of the struct tag "secret".
const (
	secretValue = "value" // the field is a secret
	secretPath  = "path"  // the field names a file that holds one: the name may be seen
	secretNo    = "no"    // the field only sounds like a secret
)

// Redacted replaces a secret.
const Redacted = "REDACTED"

var suspicious = regexp.MustCompile(`(?i)password|secret|token|key|community|communities|md5`)

// isSecret says whether the strings of a field are secrets. A field that sounds like one
// is, unless its tag says otherwise.
func isSecret(f reflect.StructField) bool {
	switch f.Tag.Get("secret") {
	case secretValue:
		return true
	case secretPath, secretNo:
		return false
	}
	return suspicious.MatchString(f.Name)
}

// Redact returns a copy of v without secrets; v stays as it is.
func Redact[T any](v T) T {
	redact(reflect.ValueOf(&v).Elem(), false)
	return v
}

// redact replaces secrets in v. It copies what v shares with others before it writes.
func redact(v reflect.Value, secret bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				redact(v.Field(i), secret || isSecret(f))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			redact(own.Elem(), secret)
			v.Set(own)
		}
	case reflect.Slice:
		redactSlice(v, secret)
	case reflect.Array:
		for i := range v.Len() {
			redact(v.Index(i), secret)
		}
	case reflect.Map:
		redactMap(v, secret)
	case reflect.Interface:
		if !v.IsNil() {
			own := reflect.New(v.Elem().Type()).Elem()
			own.Set(v.Elem())
			redact(own, secret)
			v.Set(own)
		}
	case reflect.String:
		if secret && v.Len() > 0 {
			v.SetString(Redacted)
		}
	}
}

func redactSlice(v reflect.Value, secret bool) {
	if v.IsNil() {
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if secret {
			v.SetZero()
		}
		return
	}
	own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(own, v)
	for i := range own.Len() {
		redact(own.Index(i), secret)
	}
	v.Set(own)
}

func redactMap(v reflect.Value, secret bool) {
	if v.IsNil() {
		return
	}
	own := reflect.MakeMapWithSize(v.Type(), v.Len())
	for key, value := range v.Seq2() {
		element := reflect.New(value.Type()).Elem()
		element.Set(value)
		redact(element, secret)
		own.SetMapIndex(key, element)
	}
	v.Set(own)
}

// Unmarked returns the paths of the fields below t that hold strings, sound like secrets
// and have no valid tag "secret".
func Unmarked(t reflect.Type) []string {
	var found []string
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map}, t.Kind()) {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for f := range t.Fields() {
			if !f.IsExported() {
				continue
			}
			at := path + "." + f.Name
			marked := slices.Contains([]string{secretValue, secretPath, secretNo}, f.Tag.Get("secret"))
			if !marked && suspicious.MatchString(f.Name) && holdsText(f.Type) {
				found = append(found, at)
			}
			walk(f.Type, at)
		}
	}
	walk(t, t.Name())
	return found
}

// holdsText says whether t is a string, octets, or a list, map or pointer of these.
func holdsText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Interface:
		return true
	case reflect.Slice, reflect.Array, reflect.Pointer, reflect.Map:
		return t.Elem().Kind() == reflect.Uint8 || holdsText(t.Elem())
	}
	return false
}
