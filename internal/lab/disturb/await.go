package disturb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// mtu waits until what a pod sends is no longer than that, in each family.
func mtu(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return eventually(ctx, func() error {
		got, err := podMTU(r.Instance, r.Node(e.Node))
		if err != nil {
			return err
		}
		for _, mtu := range got {
			if mtu != e.MTU {
				return fmt.Errorf("the routes of %s have the MTU %v: want %d", e.Node, got, e.MTU)
			}
		}
		return nil
	})
}

// podMTU are the MTU of a pod's default routes.
func podMTU(in *instance.Instance, p *topology.Node) (list []int, err error) {
	var link []struct {
		MTU int `json:"mtu"`
	}
	if err := network.JSON(in, p, &link, "link", "show", "dev", topology.PodInterface); err != nil || len(link) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%s has %d links %s", p.Name, len(link), topology.PodInterface))
	}
	for _, family := range []string{"-4", "-6"} {
		var routes []struct {
			Metrics []struct {
				MTU int `json:"mtu"`
			} `json:"metrics"`
		}
		if err := network.JSON(in, p, &routes, family, "route", "show", "default"); err != nil {
			return nil, err
		}
		for _, route := range routes {
			mtu := link[0].MTU
			for _, m := range route.Metrics {
				mtu = m.MTU
			}
			list = append(list, mtu)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no default route", p.Name)
	}
	return list, nil
}

// active waits until the active candidate path of a policy has the preference.
func active(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return eventually(ctx, func() error { return isActive(ctx, r, e) })
}

// pathsView is what `culvert policy` shows of a policy, as far as labs look.
type pathsView struct {
	Name  string `json:"name"`
	Paths []struct {
		Path       string `json:"path"`
		Preference uint32 `json:"preference"`
		Active     bool   `json:"active"`
	} `json:"paths"`
}

func isActive(ctx context.Context, r *Runner, e *topology.Event) error {
	var list []pathsView
	if err := daemon.AskJSON(ctx, r.Instance, r.Node(e.Node), &list, "policy"); err != nil {
		return err
	}
	for _, p := range list {
		if p.Name != e.Policy {
			continue
		}
		for _, path := range p.Paths {
			if path.Active && path.Preference == e.Preference {
				return nil
			}
		}
		return fmt.Errorf("policy %s has %+v: want an active path of preference %d", p.Name, p.Paths, e.Preference)
	}
	return fmt.Errorf("%s has no policy %q", e.Node, e.Policy)
}

// tellTime is how long what is said may take to be heard, and answered.
const tellTime = 10 * time.Second

// eventually asks until there is no error, and returns the last one.
func eventually(ctx context.Context, ask func() error) error {
	return instance.Await(ctx, tellTime, ask)
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
func told(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return eventually(ctx, func() error {
		path, err := topology.ObjectPath(e.Object)
		if err != nil {
			return err
		}
		text, err := cluster.Request(ctx, r.Instance, http.MethodGet, path, nil)
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
func recorded(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	metadata, _ := e.Object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	path := fmt.Sprintf("/api/v1/namespaces/%s/events?fieldSelector=%s", cmp.Or(namespace, "default"), url.QueryEscape("involvedObject.name="+name))
	return eventually(ctx, func() error {
		text, err := cluster.Request(ctx, r.Instance, http.MethodGet, path, nil)
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
func showsEvent(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return eventually(ctx, func() error { return observe.Shows(ctx, r.Instance, r.Node(e.Node), e.Shows, e.Command...) })
}
