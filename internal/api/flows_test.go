package api_test

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/flow"
)

func TestFlows(t *testing.T) {
	a, c, _ := start(t, "edge.yaml")
	if err := c.Flows(t.Context(), flow.Filter{}, nil); err == nil || err.Error() != agent.ErrNoFlows.Error() {
		t.Errorf("where nothing is recorded: %v", err)
	}
	end := flow.End{Pod: "a/b", Namespace: "a", Workload: "Pod/b", Node: "n", Address: netip.MustParseAddr("10.0.0.1"), Port: 7}
	a.PodFlows = []flow.Flow{
		{ID: 1, Source: end, Protocol: "TCP", Verdict: flow.Allowed, Packets: 5, First: time.Unix(1, 5).UTC(), Last: time.Unix(2, 0).UTC()},
		{ID: 2, Destination: end, Verdict: flow.Dropped, NetworkPolicies: []string{"a/p"}, First: time.Unix(1, 0).UTC(), Last: time.Unix(2, 0).UTC()},
	}
	for _, tt := range []struct {
		filter flow.Filter
		want   []flow.Flow
	}{
		{flow.Filter{Since: time.Minute}, a.PodFlows},
		{flow.Filter{Verdict: flow.Dropped}, a.PodFlows[1:]},
		{flow.Filter{Pod: "a/c"}, nil},
		{flow.Filter{Follow: true, Port: 7}, a.PodFlows[1:]},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var got []flow.Flow
		err := c.Flows(ctx, tt.filter, func(v flow.Flow) error {
			if got = append(got, v); tt.filter.Follow {
				cancel()
			}
			return nil
		})
		cancel()
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v: %v\ngot  %+v\nwant %+v", tt.filter, err, got, tt.want)
		}
	}
	errStop := errors.New("stop")
	if err := c.Flows(t.Context(), flow.Filter{}, func(flow.Flow) error { return errStop }); !errors.Is(err, errStop) {
		t.Errorf("stopped: %v", err)
	}
}
