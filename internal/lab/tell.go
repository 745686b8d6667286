package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// tellTime is how long what is said may take to be heard, and answered.
const tellTime = 10 * time.Second

// eventually asks until there is no error, and returns the last one.
func eventually(ctx context.Context, ask func() error) error {
	var last error
	instance.WaitFor(tellTime, func() bool {
		last = ask()
		return last == nil || ctx.Err() != nil
	})
	return errors.Join(last, ctx.Err())
}

// progressView is what a node says of a candidate path.
type progressView struct {
	Name   string    `json:"name"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// objectView is an object of the Kubernetes API, as far as labs look.
type objectView struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Nodes []progressView `json:"nodes"`
	} `json:"status"`
}

// listingView is what a node says of its ConfigMap.
type listingView struct {
	Error string         `json:"error"`
	Paths []progressView `json:"paths"`
}

// told wants the object to say, in its status, what became of it at the node: the
// state, and why. A ConfigMap with errors has no state.
func (r *runner) told(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return eventually(ctx, func() error {
		path, err := topology.ObjectPath(e.Object)
		if err != nil {
			return err
		}
		text, err := kube(ctx, r.Instance, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		return saysOf(text, e)
	})
}

func saysOf(text []byte, e *topology.Event) error {
	var object objectView
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	said := object.Status.Nodes
	if note, there := object.Metadata.Annotations["culvert.net/status"]; there {
		var listing listingView
		if err := json.Unmarshal([]byte(note), &listing); err != nil {
			return fmt.Errorf("annotation culvert.net/status: %w", err)
		}
		if e.State == "" {
			if listing.Error == "" || !strings.Contains(listing.Error, e.Says) {
				return fmt.Errorf("the status says %q: want %q", listing.Error, e.Says)
			}
			return nil
		}
		said = listing.Paths
	}
	for _, p := range said {
		if p.State == e.State && strings.Contains(p.Reason, e.Says) && !p.Since.IsZero() && (object.Status.Nodes == nil || p.Name == e.Node) {
			return nil
		}
	}
	return fmt.Errorf("the status says %+v: want %s, %q", said, e.State, e.Says)
}

// recorded wants an event about the object that says something.
func (r *runner) recorded(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	metadata, _ := e.Object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	path := fmt.Sprintf("/api/v1/namespaces/%s/events?fieldSelector=%s", cmp.Or(namespace, "default"), url.QueryEscape("involvedObject.name="+name))
	return eventually(ctx, func() error {
		text, err := kube(ctx, r.Instance, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		var list struct {
			Items []struct {
				Message string `json:"message"`
			} `json:"items"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			if strings.Contains(item.Message, e.Says) {
				return nil
			}
		}
		return fmt.Errorf("the events about %s are %v: want %q", name, list.Items, e.Says)
	})
}

// showsEvent waits until a command shows something.
func (r *runner) showsEvent(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return eventually(ctx, func() error { return r.shows(ctx, r.Node(e.Node), e.Shows, e.Command...) })
}

// showsCheck wants a command to show something.
func (r *runner) showsCheck(ctx context.Context, c *topology.Check, o *report.Outcome) error {
	command := c.Command
	if c.ToName != "" {
		command = append(command[:len(command):len(command)], c.To.String())
	}
	if err := r.shows(ctx, r.Node(c.From), c.Expect.Shows, command...); err != nil {
		o.Fail("%v", err)
	}
	return nil
}

func (r *runner) shows(ctx context.Context, n *topology.Node, want any, command ...string) error {
	var got any
	if err := askJSON(ctx, r.Instance, n, &got, command...); err != nil {
		return err
	}
	if err := includes(got, want); err != nil {
		return fmt.Errorf("culvert %s: %w", strings.Join(command, " "), err)
	}
	return nil
}

// includes wants all of want to be in got: what is a mapping may have more keys,
// what is a list more items, and what is a text, more of it.
func includes(got, want any) error {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if err := includes(object[key], want[key]); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	case []any:
		list, _ := got.([]any)
		for _, item := range want {
			if err := oneIncludes(list, item); err != nil {
				return err
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

// oneIncludes wants it of some item of the list.
func oneIncludes(list []any, want any) error {
	var errs []error
	for _, item := range list {
		err := includes(item, want)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("none of %d is %v: %w", len(list), want, errors.Join(errs...))
}
