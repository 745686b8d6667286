package cluster

import (
	"net/netip"
	"strings"
)

// SenderObject is a pod that pings some addresses from its first instant, 100 times a second
// each. It is on the node without the scheduler's help, so that its containers start at once.
func SenderObject(name, node string, labels map[string]string, to []netip.Addr) map[string]any {
	var script strings.Builder
	for _, a := range to {
		script.WriteString("ping -q -i 0.01 " + a.String() + " & ")
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "labels": labels},
		"spec": map[string]any{
			"nodeName": node, "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{
				"name": "ping", "image": podImage, "imagePullPolicy": "Never", "command": []string{busybox, "sh", "-c", script.String() + "wait"},
			}},
		},
	}
}
