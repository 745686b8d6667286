package topology

import (
	"maps"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// repeat replaces each element {repeat: N, ...} of a list by N that say 1 to N where it
// says %d; {repeat: N, item: TEXT} by N texts. What is a number then becomes one.
func repeat(text []byte) ([]byte, error) {
	var file any
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	return yaml.Marshal(repeated(file))
}

func repeated(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			out[key] = repeated(value)
		}
		return out
	case []any:
		out := []any{}
		for _, element := range v {
			out = append(out, copies(repeated(element))...)
		}
		return out
	}
	return v
}

// copies are what an element of a list stands for.
func copies(element any) (list []any) {
	m, _ := element.(map[string]any)
	n, repeats := m["repeat"].(float64)
	if !repeats {
		return []any{element}
	}
	m = maps.Clone(m)
	delete(m, "repeat")
	element = any(m)
	if item, alone := m["item"]; alone && len(m) == 1 {
		element = item
	}
	for i := range int(n) {
		list = append(list, numbered(element, strconv.Itoa(i+1)))
	}
	return list
}

// numbered puts a number wherever v says %d.
func numbered(v any, number string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			out[key] = numbered(value, number)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = numbered(value, number)
		}
		return out
	case string:
		text := strings.ReplaceAll(v, "%d", number)
		if n, err := strconv.Atoi(text); err == nil && text != v {
			return n
		}
		return text
	}
	return v
}
