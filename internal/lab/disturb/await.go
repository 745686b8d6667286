package disturb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// eventually repeats a question until there is no error, or for ten seconds unless the event
// says how long, and returns the last error.
func eventually(ask func(context.Context, action) error) func(context.Context, action) error {
	return func(ctx context.Context, a action) error {
		return instance.Await(ctx, a.event.For.Or(10*time.Second), func() error { return ask(ctx, a) })
	}
}

// hasMTU wants what a pod sends to be no longer than that, in each family.
func hasMTU(_ context.Context, a action) error {
	got, err := podMTU(a.Instance, a.node)
	if err == nil && slices.ContainsFunc(got, func(mtu int) bool { return mtu != a.event.MTU }) {
		err = fmt.Errorf("the routes of %s have the MTU %v: want %d", a.event.Node, got, a.event.MTU)
	}
	return err
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

// isActive wants the active candidate path of a policy to have the preference.
func isActive(ctx context.Context, a action) error {
	var list []struct {
		Name  string `json:"name"`
		Paths []struct {
			Path       string `json:"path"`
			Preference uint32 `json:"preference"`
			Active     bool   `json:"active"`
		} `json:"paths"`
	}
	if err := daemon.AskJSON(ctx, a.Instance, a.node, &list, "policy"); err != nil {
		return err
	}
	for _, p := range list {
		if p.Name != a.event.Policy {
			continue
		}
		for _, path := range p.Paths {
			if path.Active && path.Preference == a.event.Preference {
				return nil
			}
		}
		return fmt.Errorf("policy %s has %+v: want an active path of preference %d", p.Name, p.Paths, a.event.Preference)
	}
	return fmt.Errorf("%s has no policy %q", a.event.Node, a.event.Policy)
}

// progressView is the state that a node reports of a candidate path.
type progressView struct {
	Name   string    `json:"name"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// hasStatus wants the object to say, in its status, what became of it at the node:
// the state, and why. A ConfigMap with errors has no state.
func hasStatus(ctx context.Context, a action) error {
	path, err := topology.ObjectPath(a.event.Object)
	if err != nil {
		return err
	}
	text, err := cluster.Request(ctx, a.Instance, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return saysOf(text, a.event)
}

func saysOf(text []byte, e *topology.Event) error {
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Status struct {
			Nodes []progressView `json:"nodes"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	said := object.Status.Nodes
	if note, there := object.Metadata.Annotations["culvert.net/status"]; there {
		var listing struct { // the state that a node reports of its ConfigMap
			Error string         `json:"error"`
			Paths []progressView `json:"paths"`
		}
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

// isRecorded wants a Kubernetes event about the object that contains the text.
func isRecorded(ctx context.Context, a action) error {
	object := unstructured.Unstructured{Object: a.event.Object}
	text, err := cluster.Request(ctx, a.Instance, http.MethodGet, fmt.Sprintf("/api/v1/namespaces/%s/events?fieldSelector=%s",
		cmp.Or(object.GetNamespace(), "default"), url.QueryEscape("involvedObject.name="+object.GetName())), nil)
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
		if strings.Contains(item.Message, a.event.Says) {
			return nil
		}
	}
	return fmt.Errorf("the events about %s are %v: want %q", object.GetName(), list.Items, a.event.Says)
}
