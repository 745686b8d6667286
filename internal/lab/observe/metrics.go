package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// metrics reads the counters that a node exports to Prometheus, by name and labels;
// none where its configuration does not say where.
func metrics(ctx context.Context, in *instance.Instance, n *topology.Node, into map[string]uint64) error {
	settings, _ := n.Config["metrics"].(map[string]any)
	listen, _ := settings["listen"].(string)
	if listen == "" {
		return nil
	}
	response, err := network.Get(ctx, in, n, listen, "/metrics")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return fmt.Errorf("metrics of %s: %w", n.Name, err)
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetType() == dto.MetricType_COUNTER {
				into[name+labelText(m)] = uint64(m.GetCounter().GetValue())
			}
		}
	}
	return nil
}

// labelText is as in {policy="gold",list="0"}, in the order of their names.
func labelText(m *dto.Metric) string {
	var parts []string
	for _, l := range m.GetLabel() {
		parts = append(parts, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ",") + "}"
}
