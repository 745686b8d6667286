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
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// metrics reads what a node tells Prometheus, by name and labels; nothing where
// its configuration does not say where.
func metrics(ctx context.Context, r *instance.Instance, n *topology.Node) (map[string]uint64, error) {
	settings, _ := n.Config["metrics"].(map[string]any)
	listen, _ := settings["listen"].(string)
	if listen == "" {
		return nil, nil
	}
	response, err := r.GetFrom(ctx, n, listen, "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", n.Name, err)
	}
	found := map[string]uint64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetType() == dto.MetricType_COUNTER {
				found[name+labelText(m)] = uint64(m.GetCounter().GetValue())
			}
		}
	}
	return found, nil
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
