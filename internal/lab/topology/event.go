package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Event is something that is done to the lab, mostly under traffic.
type Event struct {
	Do     string `json:"do"`               // one of eventKinds
	Node   string `json:"node,omitempty"`   // all but n9, mode, smf, wait
	Device string `json:"device,omitempty"` // link_down, link_up, capture; tunnel: of the GTP-U endpoint
	// Overlay of the node's configuration that an apply lays over it; none: the
	// configuration as it is.
	Overlay string `json:"overlay,omitempty"`
	// SMF does the step, which is one of `culvert smf run`, where an F-TEID may
	// be a reference: see resolve.
	SMF  string         `json:"smf,omitempty"`
	Step map[string]any `json:"step,omitempty"`
	// FTEID is where a tunnel goes from here on, as a reference: what the gNB
	// learns by N2. IPv6: the F-TEID's address of that family.
	FTEID string `json:"fteid,omitempty"`
	IPv6  bool   `json:"ipv6,omitempty"`
	// SID is the address in place of the F-TEID's: that of a gateway without state before the
	// UPF (RFC 9433 section 5.3.1).
	SID netip.Addr `json:"sid,omitzero"`
	// UPF has the session of the UE where a core's SMF chose the tunnel.
	UPF string     `json:"upf,omitempty"`
	UE  netip.Addr `json:"ue,omitzero"`
	// Paths are what an injector advertises; Object is one of the Kubernetes API.
	Paths  []map[string]any `json:"paths,omitempty"`
	Object map[string]any   `json:"object,omitempty"`
	// Policy is one whose active candidate path must have the Preference.
	Policy     string `json:"policy,omitempty"`
	Preference uint32 `json:"preference,omitempty"`
	// State is what the node is to say of the object, and Says a part of why.
	State string `json:"state,omitempty"`
	Says  string `json:"says,omitempty"`
	// Route is in iproute2's grammar, MTU that of a pod's packets.
	Route string `json:"route,omitempty"`
	MTU   int    `json:"mtu,omitempty"`
	// Command of culvert, or the engine's state, is to show Shows, and may show more.
	Command []string `json:"command,omitempty"`
	Shows   any      `json:"shows,omitempty"`
	// Address is the IPv6 address that a node moves to (move).
	Address netip.Prefix `json:"address,omitzero"`
	// Program of a node of kind kubelet that is killed; culvert unless set. Of other events it
	// is one of the lab's programs: what they start, end, or want to say so.
	Program string `json:"program,omitempty"`
	Times   int    `json:"times,omitempty"` // that it says so: once unless set
	// Script of the shell is run in a node of kind machine (run).
	Script string `json:"script,omitempty"`
	// Kubectl is what it is to do.
	Kubectl *Command `json:"kubectl,omitempty"`
	// For is how long a wait is, a CPU is busy, or something may take to be as it should.
	For Duration `json:"for,omitempty"`
	CPU int      `json:"cpu,omitempty"`
}

// Title is what an event is called in a report.
func (e *Event) Title() string {
	switch {
	case e.Do == "smf":
		return fmt.Sprintf("%v by %s", e.Step["do"], e.SMF)
	case e.Program != "" && e.Node == "":
		return e.Do + " " + e.Program
	case e.Node == "":
		return e.Do
	}
	return e.Do + " of " + e.Node
}

// Command is what a check or an event has kubectl do. Input is a list of objects
// for its standard input.
type Command struct {
	Args  []string         `json:"args"`
	Input []map[string]any `json:"input,omitempty"`
	// Output must match what it prints.
	Output string `json:"output,omitempty"`
	// Agent is a node: kubectl has the token of the agent there, in place of the
	// administrator's. Refused must match why the API server refuses.
	Agent   string `json:"agent,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// NodePrograms are those of a node of kind kubelet that can be killed, by the words
// that they are started with. They are started again: culvert by its kubelet, the
// others by the node's first process.
var NodePrograms = map[string][]string{
	"culvert": {"culvert", "run"}, "containerd": {"containerd"}, "kubelet": {"kubelet"}, "kube-proxy": {"kube-proxy"},
}

// plurals of the resources that labs have objects of.
var plurals = map[string]string{
	"Node": "nodes", "Pod": "pods", "ConfigMap": "configmaps", "Namespace": "namespaces", "Service": "services", "EndpointSlice": "endpointslices",
	"CustomResourceDefinition": "customresourcedefinitions", "SRv6Policy": "srv6policies", "NetworkPolicy": "networkpolicies",
	"ServiceAccount": "serviceaccounts", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings",
	"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}

// ObjectPath is where an object is in the API.
func ObjectPath(o map[string]any) (string, error) {
	v := unstructured.Unstructured{Object: o}
	if plurals[v.GetKind()] == "" || v.GetName() == "" || v.GetAPIVersion() == "" {
		text, err := json.Marshal(o)
		return "", errors.Join(fmt.Errorf("object: %s: give apiVersion, metadata.name, and a kind of %v", text, keys(plurals)), err)
	}
	path := "/apis/" + v.GetAPIVersion()
	if v.GetAPIVersion() == "v1" {
		path = "/api/v1"
	}
	if namespace := v.GetNamespace(); namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + plurals[v.GetKind()] + "/" + v.GetName(), nil
}
