package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Shows returns an error unless the output of a culvert command includes want.
func Shows(ctx context.Context, in *instance.Instance, n *topology.Node, want any, command ...string) error {
	var got any
	if err := daemon.AskJSON(ctx, in, n, &got, command...); err != nil {
		return err
	}
	if err := Includes(got, want); err != nil {
		return fmt.Errorf("culvert %s: %w", strings.Join(command, " "), err)
	}
	return nil
}

// Includes wants all of want to be in got: what is a mapping may have more keys,
// what is a list more items, and what is a text, more of it. A number is at_most or at_least one.
func Includes(got, want any) error {
	switch want := want.(type) {
	case map[string]any:
		if most, ok := want["at_most"].(float64); ok && len(want) == 1 {
			if number, ok := got.(float64); ok && number <= most {
				return nil
			}
			return fmt.Errorf("%v: want at most %v", got, most)
		}
		if least, ok := want["at_least"].(float64); ok && len(want) == 1 {
			if number, ok := got.(float64); ok && number >= least {
				return nil
			}
			return fmt.Errorf("%v: want at least %v", got, least)
		}
		object, _ := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if err := Includes(object[key], want[key]); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	case []any:
		list, _ := got.([]any)
		for _, item := range want {
			var errs []error
			one := slices.ContainsFunc(list, func(g any) bool {
				errs = append(errs, Includes(g, item))
				return errs[len(errs)-1] == nil
			})
			if !one {
				return fmt.Errorf("none of %d is %v: %w", len(list), item, errors.Join(errs...))
			}
		}
		return nil
	case string:
		if text, ok := got.(string); ok && strings.Contains(text, want) {
			return nil
		}
	default:
		if got == want {
			return nil
		}
	}
	return fmt.Errorf("%v: want %v", got, want)
}
