// Package culvert_test holds what is tested of the module as a whole: who may
// import whom.
package culvert_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/culvert-net/culvert/"

// models are values that everything else agrees on.
var models = []string{"srv6", "gtpu", "internal/srpolicy", "internal/session", "internal/slice", "internal/overlay", "internal/spread", "internal/class", "internal/te", "internal/announce", "internal/nat", "internal/netpol", "internal/flow", "internal/plural"}

// layers say which of our packages each may import besides itself. A name
// stands for the packages below it too. Tests may import more: they look at
// their subject from outside.
var layers = []struct {
	of  string
	may []string
	why string
}{
	{"srv6", nil, "public, and the lowest model"},
	{"gtpu", []string{"srv6"}, "public; models import models below them"},
	{"internal/srpolicy", []string{"srv6"}, "models import models below them"},
	{"internal/session", nil, "the lowest model of the UPF"},
	{"internal/slice", []string{"internal/session"}, "models import models below them"},
	{"internal/overlay", []string{"srv6", "internal/srpolicy"}, "models import models below them"},
	{"internal/spread", nil, "models are values and pure functions"},
	{"internal/announce", nil, "models are values and pure functions"},
	{"internal/nat", nil, "models are values and pure functions"},
	{"internal/flow", nil, "models are values and pure functions"},
	{"internal/netpol", nil, "models are values and pure functions"},
	{"internal/class", []string{"srv6", "internal/srpolicy"}, "models import models below them"},
	{"internal/plural", nil, "words for numbers: it knows nothing that is counted"},
	{"internal/te", []string{"srv6", "internal/srpolicy", "internal/plural"}, "models import models below them"},
	{"internal/config", models, "what can be told must not depend on how it is done"},
	{"internal/engine", append([]string{"internal/config"}, models...), "traffic engineering of a whole network: it knows no node's daemon"},
	{"internal/netdev", models, "the kernel's links and routes know nothing of our tables"},
	{"internal/dataplane", append([]string{"internal/netdev", "internal/checksum"}, models...), "an adapter: agent joins adapters, they never import each other"},
	{"internal/dataplane/abi", nil, "layouts and numbers that C and Go share: it knows nobody"},
	{"internal/dataplane/table", []string{"internal/dataplane/abi"}, "ways to write a map: it knows no concept"},
	{"internal/dataplane/counter", []string{"internal/dataplane/abi"}, "reads what is counted, whatever counts"},
	{"internal/dataplane/reason", []string{"internal/dataplane/abi"}, "names of drop reasons: it knows no table"},
	{"internal/dataplane/ref", nil, "counts users of anything"},
	{"internal/dataplane/migrate", []string{"internal/dataplane/counter", "internal/dataplane/table"}, "copies fields by name: tables' meaning is told it"},
	{"internal/dataplane/pin", []string{"internal/dataplane/abi"}, "owns the bpffs: it does not know what runs"},
	{"internal/dataplane/port", append([]string{"internal/dataplane/abi", "internal/dataplane/table"}, models...), "interfaces: who steers or attaches is above"},
	{"internal/dataplane/xdp", []string{"internal/dataplane/port"}, "runs the program on frames: it knows no table"},
	{"internal/dataplane/feature", []string{"internal/dataplane/xdp"}, "asks the kernel, and nobody else"},
	{"internal/dataplane/settings", []string{"internal/dataplane/abi", "internal/dataplane/table", "internal/nat"}, "what every packet depends on: who lives in its ranges is above"},
	{"internal/dataplane/lpm", []string{"internal/dataplane/abi", "internal/dataplane/table"}, "tables of prefixes: who fills them is above"},
	{"internal/dataplane/adjacency", []string{"internal/dataplane/abi", "internal/dataplane/lpm", "internal/dataplane/table"}, "where packets leave: who refers to it is above"},
	{"internal/dataplane/mobile", []string{"internal/dataplane/abi", "internal/dataplane/table"}, "parameters only: who refers to them is above"},
	{"internal/dataplane/attach", []string{"internal/dataplane/abi", "internal/dataplane/pin", "internal/dataplane/port", "internal/netdev"}, "puts programs on interfaces: it knows no table"},
	{"internal/dataplane/target", []string{"internal/dataplane/abi", "internal/dataplane/lpm", "internal/dataplane/table", "internal/dataplane/port"}, "holds the targets of all: it makes none"},
	{"internal/dataplane/reach", []string{"internal/dataplane/abi", "internal/dataplane/lpm", "internal/dataplane/table"}, "holds what UEs must not reach: who refers to it is above"},
	{"internal/dataplane/policy", append([]string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/counter", "internal/dataplane/ref", "internal/dataplane/settings", "internal/dataplane/adjacency"}, models...), "SIDs, steering, tunnels and sessions refer to policies, which know none of them"},
	{"internal/dataplane/sid", append([]string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/counter", "internal/dataplane/ref", "internal/dataplane/settings", "internal/dataplane/adjacency", "internal/dataplane/migrate", "internal/dataplane/mobile", "internal/dataplane/policy"}, models...), "a SID names a policy: the other direction is an interface of policy"},
	{"internal/dataplane/tunnel", append([]string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/counter", "internal/dataplane/migrate", "internal/dataplane/ref", "internal/dataplane/settings", "internal/dataplane/adjacency", "internal/dataplane/policy"}, models...), "steering sends into tunnels: the other direction is an interface of tunnel"},
	{"internal/dataplane/class", append([]string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/counter", "internal/dataplane/policy"}, models...), "rows lead to policies, which know none of them"},
	{"internal/dataplane/steering", append([]string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/ref", "internal/dataplane/settings", "internal/dataplane/mobile", "internal/dataplane/policy", "internal/dataplane/class", "internal/dataplane/target", "internal/dataplane/tunnel"}, models...), "it joins what matches and where it goes: both are below"},
	{"internal/dataplane/ethernet", []string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/adjacency", "internal/dataplane/target"}, "links: the sessions on them are above"},
	{"internal/dataplane/pod", append([]string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/counter", "internal/dataplane/attach", "internal/dataplane/port", "internal/dataplane/steering", "internal/dataplane/target"}, models...), "pods yield to what is steered"},
	{"internal/dataplane/netpol", []string{"internal/dataplane/abi", "internal/dataplane/attach", "internal/dataplane/pod", "internal/dataplane/table", "internal/netpol"}, "isolates pods: it knows nothing of where packets go"},
	{"internal/dataplane/event", []string{"internal/dataplane/abi", "internal/dataplane/table", "internal/dataplane/adjacency", "internal/dataplane/ethernet", "internal/dataplane/reason", "internal/dataplane/settings", "internal/dataplane/xdp", "internal/flow"}, "records: what their numbers mean is told it"},
	{"internal/dataplane/session", []string{"internal/class", "internal/dataplane/abi", "internal/dataplane/adjacency", "internal/dataplane/counter", "internal/dataplane/ethernet",
		"internal/dataplane/migrate", "internal/dataplane/settings", "internal/dataplane/table", "internal/dataplane/target", "internal/session"},
		"it knows the rest of the data path by an interface, so that plans are tested without a kernel"},
	{"internal/slowpath", append([]string{"internal/netdev", "internal/checksum", "internal/tally"}, models...), "an adapter: agent joins adapters, they never import each other"},
	{"internal/liveness", []string{"internal/checksum"}, "sends and judges probes: which lists there are, and what follows, its caller knows"},
	{"internal/pfcp", models, "an adapter: it declares the user plane that it speaks for, and does not know it"},
	{"internal/pfcp/wire", models, "PFCP as octets: it knows no request and no server"},
	{"internal/pfcp/request", append([]string{"internal/pfcp/wire"}, models...), "a request becomes a session: who serves it is above it"},
	{"internal/bgp", models, "an adapter: it turns what peers say into models, and knows nobody else"},
	{"internal/kube", append([]string{"internal/config", "internal/connectivity"}, models...),
		"an adapter: it turns what the Kubernetes API says into models; people write ConfigMaps, which config reads as strictly as a configuration; " +
			"kube/operator is the cluster that connectivity tests"},
	{"internal/connectivity", []string{"internal/probe", "internal/overlay"}, "it judges a cluster by an interface, so that it can be tested without one"},
	{"internal/capture", nil, "reads files and text: what is in a frame is for others"},
	{"internal/frame", models, "tells what is in a frame, for the agent's filter and for people: it knows neither"},
	{"internal/printer", nil, "prints anybody's values: it knows none of them"},
	{"internal/support", nil, "collects what its caller's items say: it knows neither the daemon nor its configuration"},
	{"internal/dataplane/inventory", nil, "lists what is pinned: it knows no table"},
	{"internal/cmdline", []string{"internal/printer"}, "what all command lines share: it knows none of them"},
	{"internal/labcli", []string{"internal/lab", "internal/bench", "internal/smf", "internal/gnb", "internal/config", "internal/session", "internal/cmdline", "internal/printer"},
		"the command line of the laboratory: it knows the product from outside, as its parts do"},
	{"internal/logevent", nil, "names of what is logged: it knows nobody who logs"},
	{"internal/metricdoc", nil, "reads descriptions of any metrics: it knows none"},
	{"internal/tally", nil, "reads counters of any struct: it knows none"},
	{"internal/probe", nil, "sends and counts: it knows neither laboratory nor cluster"},
	{"internal/smf", append([]string{"internal/capture", "internal/config"}, models...),
		"a laboratory instrument: it judges every UPF from outside, and shares no code with ours but the readers of captures and of YAML"},
	{"internal/gnb", append([]string{"internal/smf", "internal/lab/gtpulink", "internal/lab/namespace", "internal/probe"}, models...),
		"a gNB that looks at every UPF from outside: it knows no laboratory"},
	{"internal/smf/wire", nil, "octets: it knows no client"},
	{"internal/smf/replay", []string{"internal/capture", "internal/smf/wire"}, "plays through a client that it knows by an interface"},
	{"internal/bpffs", nil, "mounts a file system for laboratories, measurements and tests: it knows none"},
	{"internal/checksum", nil, "arithmetic on octets: it knows no header of ours"},
	{"internal/packet", []string{"internal/checksum"}, "builds frames for tests and for the laboratory: it knows neither"},
	{"internal/lab/gtpulink", []string{"internal/probe"}, "a GTP-U endpoint of its own: it shares no code with ours, and knows no laboratory"},
	{"internal/lab/kubelet", nil, "a node on a part of the machine: it knows no laboratory"},
	{"internal/lab/topology", []string{"internal/lab/gtpulink", "internal/lab/topologies", "internal/smf", "internal/printer", "internal/packet"},
		"values that are read and validated: nothing in it touches the machine"},
	{"internal/lab/page", nil, "a browser before a page: it knows no laboratory"},
	{"internal/lab/suite", nil, "tests of Kubernetes': it knows no laboratory"},
	{"internal/lab/namespace", nil, "named network namespaces: it knows no laboratory"},
	{"internal/lab/report", []string{"internal/printer"}, "what checks came to, and how it is printed: it knows no check"},
	{"internal/lab/instance", []string{"internal/lab/kubelet", "internal/lab/namespace", "internal/lab/report", "internal/lab/topology"},
		"what a laboratory made, and how it is removed: it knows none of the programs in the nodes"},
	{"internal/lab/network", []string{"internal/lab/instance", "internal/lab/namespace", "internal/lab/topology"},
		"namespaces, links and routes: it knows none of the programs in the nodes"},
	{"internal/lab/daemon", []string{"internal/bpffs", "internal/lab/gtpulink", "internal/lab/instance", "internal/lab/namespace", "internal/lab/topology", "internal/smf"},
		"programs in nodes: what is done to them is above"},
	{"internal/lab/cluster", []string{"internal/lab/daemon", "internal/lab/instance", "internal/lab/network", "internal/lab/kubelet", "internal/lab/namespace", "internal/lab/topology",
		"internal/image", "dist/kubernetes"}, "Kubernetes in nodes: what is done to it is above"},
	{"internal/lab/machine", []string{"internal/bpffs", "internal/lab/instance", "internal/lab/kubelet", "internal/lab/namespace", "internal/lab/topology"},
		"a machine that boots: what is installed there is a topology's business"},
	{"internal/lab/observe", []string{"internal/lab/daemon", "internal/lab/instance", "internal/lab/network", "internal/lab/report", "internal/lab/topology"},
		"it reads what nodes count, and changes nothing"},
	{"internal/lab/disturb", []string{"internal/lab/cluster", "internal/lab/daemon", "internal/lab/gtpulink", "internal/lab/instance", "internal/lab/machine", "internal/lab/network", "internal/lab/namespace",
		"internal/lab/observe", "internal/lab/report", "internal/lab/topology"}, "events know no checks: checks cause events"},
	{"internal/image", nil, "files in, an image out: it knows neither our programs nor the laboratory's"},
	{"internal/ipam", nil, "who holds which address: it knows neither pods nor the kernel"},
	{"internal/cni", []string{"internal/api/culvertv1"}, "started for every pod, so it has to be small: of the daemon it knows the messages only"},
	{"internal/upf", append([]string{"internal/dataplane", "internal/pfcp", "internal/tally"}, models...),
		"between the N4 server, whose user plane it is, and the data path; who configures it is above it"},
	{"internal/upf/stats", []string{"internal/tally"}, "counts only"},
	{"internal/upf/wheel", nil, "has timers of anything"},
	{"internal/upf/journal", nil, "writes records: it does not know what is in them"},
	{"internal/upf/codec", []string{"internal/session"}, "encodes the model"},
	{"internal/upf/pool", []string{"internal/pfcp"}, "hands out addresses: it knows no sessions"},
	{"internal/upf/path", []string{"internal/session", "gtpu", "srv6", "internal/upf/stats"}, "knows peers and tunnels, not what a session is made of"},
	{"internal/upf/rules", []string{"internal/session", "internal/slice", "internal/class", "internal/pfcp", "internal/dataplane"}, "a pure function from sessions to rules"},
	{"internal/upf/usage", []string{"internal/session", "internal/pfcp", "internal/dataplane", "internal/upf/codec", "internal/upf/rules"}, "measures: who asks and who hears is above it"},
	{"internal/upf/buffer", []string{"internal/session", "internal/dataplane", "internal/upf/rules", "internal/upf/stats"}, "keeps packets: who sends them is above it"},
	{"internal/upf/lan", []string{"internal/dataplane", "internal/upf/stats"}, "knows links and hosts by their session's number"},
	{"internal/upf/store", []string{"internal/session", "internal/pfcp", "internal/upf/buffer", "internal/upf/codec", "internal/upf/journal", "internal/upf/stats", "internal/upf/usage", "internal/upf/wheel"},
		"owns sessions: it reaches neither the data path nor an SMF"},
	{"internal/agent", append([]string{"internal/config", "internal/dataplane", "internal/netdev", "internal/slowpath", "internal/pfcp", "internal/upf", "internal/bgp", "internal/kube", "internal/ipam", "internal/frame", "internal/liveness", "internal/tally"}, models...),
		"joins adapters; who asks it (api, cli) is above it"},
	{"internal/agent/desired", append([]string{"internal/config"}, models...), "what people ask for does not depend on what others say, or on how it is done"},
	{"internal/agent/observed", append([]string{"internal/agent/desired", "internal/config", "internal/bgp", "internal/kube"}, models...),
		"what others say is observed before anybody plans with it"},
	{"internal/agent/plan", append([]string{"internal/agent/desired", "internal/agent/observed", "internal/config", "internal/dataplane", "internal/netdev", "internal/upf"}, models...),
		"it decides and writes nothing: of adapters it uses the values"},
	{"internal/agent/pods", []string{"internal/agent/desired", "internal/class", "internal/dataplane", "internal/netdev", "internal/ipam"}, "a pod that comes waits for no change of the configuration"},
	{"internal/agent/isolation", []string{"internal/agent/pods", "internal/netpol"}, "it knows the API server and the data path by interfaces, so that races are tested without either"},
	{"internal/agent/apply", append([]string{"internal/agent/desired", "internal/agent/plan", "internal/agent/pods", "internal/dataplane", "internal/netdev", "internal/upf"}, models...),
		"it writes what is planned, whoever asked for it"},
	{"internal/agent/store", append([]string{"internal/agent/desired", "internal/agent/observed", "internal/config"}, models...), "the state on disk is what was asked for and said, not what follows from it"},
	{"internal/agent/pathmtu", []string{"internal/dataplane", "internal/slowpath", "internal/tally"}, "what routers say of paths changes nothing that was asked for"},
	{"internal/agent/punt", []string{"internal/agent/pathmtu", "internal/dataplane", "internal/netdev", "internal/slowpath", "internal/upf"}, "packets that are handed up know nothing of the configuration"},
	{"internal/ui", nil, "files, and who may frame them: it knows the API by its address only"},
	{"internal/api", append([]string{"internal/agent", "internal/capture", "internal/config", "internal/frame", "internal/ui"}, models...), "offers the agent to others and reaches around it to no adapter"},
	{"internal/model", append([]string{"internal/config"}, models...), "the reference that the data path is compared with shares no code with it"},
	{"internal/bench/search", nil, "a standard's algorithm: it knows neither who runs its trials nor who draws them"},
	{"internal/bench/stats", nil, "samples in, figures out: it knows no experiment"},
	{"internal/bench/experiment", append([]string{"internal/bench/result", "internal/bench/stats", "internal/bench/report", "internal/config", "internal/cmdline"}, models...),
		"the frame of every experiment knows none: kinds are given to it"},
	{"internal/bench/report", []string{"internal/bench/result", "internal/bench/stats"}, "who draws knows nothing of what measures: any run can be drawn again"},
	{"internal/bench/proc", nil, "CPUs and threads: it knows no packet"},
	{"internal/bench/node", append([]string{"internal/bpffs", "internal/bench/proc", "internal/bench/result", "internal/api/culvertv1", "internal/api/message", "internal/config"}, models...), "what is measured does not know what measures it"},
	{"internal/bench/rig", []string{"internal/bench/node", "internal/bench/proc", "internal/bench/stats", "internal/dataplane/progrun"}, "makes and sinks any frame: it knows no function"},
	{"internal/bench/catalog", append([]string{"internal/bench/node", "internal/bench/rig", "internal/dataplane/progrun", "internal/packet", "internal/checksum", "internal/config", "internal/smf"}, models...),
		"says what functions are: it measures none"},
	{"internal/bench/cost", append([]string{"internal/bench/catalog", "internal/bench/experiment", "internal/bench/node", "internal/bench/rig", "internal/bench/proc", "internal/bench/result",
		"internal/bench/stats", "internal/dataplane/progrun", "internal/config", "internal/smf"}, models...), "measures rows: which ones is an experiment's business"},
	{"internal/bench/traffic", append([]string{"internal/bench/napi", "internal/bench/result", "internal/bench/stats", "internal/bench/proc", "internal/dataplane/trafficrun",
		"internal/checksum", "internal/packet", "internal/config", "internal/netdev"}, models...), "sends to any device: it knows none"},
	{"internal/bench/signalling", append([]string{"internal/bench/catalog", "internal/bench/cost", "internal/bench/napi", "internal/bench/node", "internal/bench/proc", "internal/bench/traffic", "internal/config", "internal/dataplane/trafficrun", "internal/smf"}, models...),
		"an SMF to any UPF: it knows no experiment"},
	{"internal/bench/functions", benchRoles, "experiments build on roles, never on each other"},
	{"internal/bench/scale", benchRoles, "experiments build on roles, never on each other"},
	{"internal/bench/restart", benchRoles, "experiments build on roles, never on each other"},
	{"internal/bench/device", benchRoles, "experiments build on roles, never on each other"},
	{"internal/bench/disrupt", append([]string{"internal/bench/device", "internal/lab", "internal/api/culvertv1"}, benchRoles...), "does events to the devices of device; knows no other experiment"},
	{"internal/bench/n9", append([]string{"internal/lab"}, benchRoles...), "experiments build on roles, never on each other"},
	{"internal/bench/sourcesink", append([]string{"internal/lab"}, benchRoles...), "experiments build on roles, never on each other"},
	{"internal/bench/te", benchRoles, "experiments build on roles, never on each other"},
	{"internal/bench/overlay", append([]string{"internal/lab", "internal/api/culvertv1", "internal/bgp", "internal/dataplane/progrun", "internal/packet"}, benchRoles...), "experiments build on roles, never on each other"},
	{"internal/testutil", append([]string{"internal/bpffs", "internal/config", "internal/lab/instance", "internal/lab/namespace", "internal/model", "internal/packet"}, models...), "serves the tests of every package, so it can import few"},
}

// benchRoles are what experiments of the benchmarks build on.
var benchRoles = append([]string{
	"internal/bench/experiment", "internal/bench/result", "internal/bench/signalling", "internal/bench/stats", "internal/bench/search", "internal/bench/traffic", "internal/bench/napi",
	"internal/bench/proc", "internal/bench/node", "internal/bench/rig", "internal/bench/catalog", "internal/bench/cost", "internal/config", "internal/smf",
}, models...)

// outsiders run the built binary: what measures cannot reach inside what it
// measures, not even by way of another package.
var outsiders = []string{"internal/lab", "internal/bench"}

var insides = []string{"internal/dataplane", "internal/agent", "internal/slowpath"}

// products are the programs that servers and cluster nodes carry, and instruments
// what only culvert-lab carries.
var (
	products    = []string{"cmd/culvert", "cmd/culvert-cni"}
	instruments = []string{"internal/lab", "internal/bench", "internal/smf", "internal/gnb", "internal/labcli"}
)

// runners run what is pinned, or what makes and takes packets, and reach no
// table of the data path. What they import is held to the rule.
var runners = []string{"internal/dataplane/progrun", "internal/dataplane/softrun", "internal/dataplane/trafficrun"}

// importers are the only packages that know a library: none of its types leave
// them, so that replacing it is one package's work.
var importers = []struct {
	library string
	by      []string
	why     string
}{
	{"github.com/cilium/ebpf", []string{"internal/dataplane"}, "only the data path's owner touches maps and programs"},
	{"github.com/vishvananda", []string{"internal/netdev", "internal/cni", "internal/lab", "internal/testutil"},
		"netlink and netns; the CNI plugin is a program of its own; the laboratory and tests build networks from outside"},
	{"go.etcd.io/bbolt", []string{"internal/agent", "internal/ipam"}, "one owner of the state on disk, and the book of addresses that is kept in it"},
	{"github.com/wmnsk/go-pfcp", []string{"internal/pfcp", "internal/smf"}, "one speaker of PFCP, and one that judges it from outside"},
	{"github.com/osrg/gobgp", []string{"internal/bgp"}, "one speaker of BGP"},
	{"github.com/google/nftables", []string{"internal/netdev", "internal/doctor"}, "one owner of the kernel's network; the doctor reads rules of others, and changes none"},
	{"k8s.io/client-go", []string{"internal/kube"}, "one client of Kubernetes"},
	{"github.com/mattfenwick/cyclonus", []string{"internal/testutil/policycase"}, "a judge of policies: it serves tests only"},
	{"github.com/evanw/esbuild", []string{"internal/ui/bundle"}, "it makes the page, and is in no program of ours"},
	{"github.com/google/go-containerregistry", []string{"internal/image"}, "one writer of images"},
}

// stdlibOnly are the packages that others import as a library.
var stdlibOnly = models

// names are what every package may import that is not a model: models do not log.
var names = []string{"internal/logevent"}

// under says whether path is name or below it.
func under(path, name string) bool {
	return path == name || strings.HasPrefix(path, name+"/")
}

func underAny(path string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return under(path, name) })
}

// violations are the broken rules in a graph of imports. Our own packages are
// without the module's name.
func violations(imports map[string][]string) []string {
	var found []string
	report := func(pkg, imported, why string) {
		found = append(found, fmt.Sprintf("%s imports %s: %s", pkg, imported, why))
	}
	for pkg, list := range imports {
		for _, imported := range list {
			checkImport(pkg, imported, isOurs(imports, imported), report)
		}
		if underAny(pkg, outsiders) {
			for _, reached := range closure(imports, pkg) {
				if underAny(reached, insides) && !underAny(reached, runners) {
					report(pkg, reached, "the laboratory and the benchmarks look at the daemon from outside")
				}
			}
		}
	}
	for _, pkg := range products {
		for _, reached := range closure(imports, pkg) {
			if underAny(reached, instruments) {
				report(pkg, reached, "servers and cluster nodes do not carry the laboratory: culvert-lab does")
			}
		}
	}
	slices.Sort(found)
	return found
}

func isOurs(imports map[string][]string, path string) bool {
	_, ok := imports[path]
	return ok
}

// checkImport applies the rules on single imports.
func checkImport(pkg, imported string, ours bool, report func(pkg, imported, why string)) {
	for _, rule := range layers {
		named := underAny(imported, names) && !underAny(pkg, models)
		if ours && under(pkg, rule.of) && !under(imported, rule.of) && !underAny(imported, rule.may) && !named {
			report(pkg, imported, rule.why)
		}
	}
	for _, rule := range importers {
		if under(imported, rule.library) && !underAny(pkg, rule.by) {
			report(pkg, imported, rule.why)
		}
	}
	first, _, _ := strings.Cut(imported, "/")
	if !ours && strings.Contains(first, ".") && underAny(pkg, stdlibOnly) {
		report(pkg, imported, "models import the standard library only")
	}
	if ours && under(imported, "cmd") {
		report(pkg, imported, "cmd is wiring: nothing is to be had from it")
	}
	if ours && under(imported, "internal/testutil") && !under(pkg, "internal/testutil") {
		report(pkg, imported, "what serves tests stays out of the program")
	}
}

// closure is all of our packages that pkg reaches.
func closure(imports map[string][]string, pkg string) []string {
	var reached []string
	next := slices.Clone(imports[pkg])
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if isOurs(imports, at) && !slices.Contains(reached, at) {
			reached = append(reached, at)
			next = append(next, imports[at]...)
		}
	}
	return reached
}

// graph reads the module's imports, without those of tests.
func graph(t *testing.T) map[string][]string {
	t.Helper()
	// -e: a package that does not build still has imports to be checked.
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	imports := map[string][]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return imports
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for i, path := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(path, module)
		}
		imports[strings.TrimPrefix(p.ImportPath, module)] = p.Imports
	}
}

func TestDependencies(t *testing.T) {
	imports := graph(t)
	for _, pkg := range append([]string{"internal/config", "internal/dataplane", "internal/agent"}, models...) {
		if len(imports[pkg]) == 0 {
			t.Errorf("%s is not there, or imports nothing: the rules say nothing about it", pkg)
		}
	}
	for _, v := range violations(imports) {
		t.Error(v)
	}
}

// Each import here breaks a rule, which blames the package that has it.
func TestRulesFindWhatBreaksThem(t *testing.T) {
	for _, tt := range []struct{ pkg, imported string }{
		{"srv6", "gtpu"},
		{"srv6", "sigs.k8s.io/yaml"},
		{"srv6/internal/behaviordoc", "internal/config"},
		{"internal/srpolicy", "gtpu"},
		{"internal/srpolicy", "internal/logevent"},
		{"internal/logevent", "internal/config"},
		{"internal/srpolicy", "golang.org/x/sys/unix"},
		{"internal/config", "internal/dataplane"},
		{"internal/netdev", "internal/dataplane"},
		{"internal/dataplane", "internal/slowpath"},
		{"internal/dataplane", "internal/model"},
		{"internal/slowpath", "internal/dataplane"},
		{"internal/session", "gtpu"},
		{"internal/slice", "internal/srpolicy"},
		{"internal/pfcp", "internal/dataplane"},
		{"internal/pfcp/wire", "internal/pfcp/request"},
		{"internal/pfcp/request", "internal/pfcp"},
		{"internal/smf", "internal/pfcp"},
		{"internal/smf", "internal/agent"},
		{"internal/upf", "internal/config"},
		{"internal/upf", "internal/agent"},
		{"internal/upf/rules", "internal/upf/usage"},
		{"internal/upf/journal", "internal/session"},
		{"internal/upf/store", "internal/upf"},
		{"internal/pfcp", "internal/upf"},
		{"internal/agent", "internal/api"},
		{"internal/agent/desired", "internal/agent/observed"},
		{"internal/agent/observed", "internal/agent/plan"},
		{"internal/agent/plan", "internal/agent/apply"},
		{"internal/agent/pods", "internal/agent/plan"},
		{"internal/agent/apply", "internal/agent/store"},
		{"internal/agent/store", "internal/agent/plan"},
		{"internal/agent/punt", "internal/agent/plan"},
		{"internal/api", "internal/dataplane"},
		{"internal/api/culvertv1", "internal/netdev"},
		{"internal/model", "internal/dataplane"},
		{"internal/lab", "internal/agent"},
		{"internal/probe", "internal/dataplane"},
		{"internal/connectivity", "internal/kube"},
		{"internal/kube", "internal/agent"},
		{"internal/connectivity", "k8s.io/client-go/rest"},
		{"internal/bench", "internal/slowpath"},
		{"internal/lab/topology", "internal/lab/instance"},
		{"internal/lab/instance", "internal/lab/daemon"},
		{"internal/lab/observe", "internal/lab/disturb"},
		{"internal/lab/disturb", "internal/lab/check"},
		{"internal/bench/catalog", "internal/bench/cost"},
		{"internal/bench/scale", "internal/bench/functions"},
		{"internal/lab", "internal/cli"}, // by way of cli: the agent
		{"internal/agent", "github.com/cilium/ebpf"},
		{"internal/cli", "github.com/cilium/ebpf/link"},
		{"internal/agent", "github.com/vishvananda/netlink"},
		{"internal/cli", "go.etcd.io/bbolt"},
		{"internal/agent", "github.com/wmnsk/go-pfcp/ie"},
		{"internal/cli", "cmd/culvert"},
		{"internal/cli", "internal/testutil/netns"},
		{"cmd/culvert", "internal/labcli"},
		{"cmd/culvert-cni", "internal/lab"},
		{"internal/cmdline", "internal/cli"},
		{"internal/labcli", "internal/cli"},
	} {
		got := violations(sound(tt.pkg, tt.imported))
		if !slices.ContainsFunc(got, func(v string) bool { return strings.HasPrefix(v, tt.pkg+" imports ") }) {
			t.Errorf("%s imports %s: found %v", tt.pkg, tt.imported, got)
		}
	}
	if got := violations(sound("internal/labcli", "internal/lab")); len(got) > 0 {
		t.Errorf("a sound graph: found %v", got)
	}
	// What culvert reaches counts, not only what it imports.
	if got := violations(sound("internal/cli", "internal/bench")); len(got) != 1 || !strings.HasPrefix(got[0], "cmd/culvert imports internal/bench: ") {
		t.Errorf("cli imports bench: found %v", got)
	}
}

// sound is a graph that breaks no rule, and one import more.
func sound(pkg, imported string) map[string][]string {
	imports := map[string][]string{
		"srv6":                      {"net/netip"},
		"srv6/internal/behaviordoc": {"srv6"},
		"gtpu":                      {"srv6"},
		"internal/srpolicy":         {"srv6"},
		"internal/config":           {"gtpu", "internal/srpolicy", "srv6", "go.yaml.in/yaml/v3"},
		"internal/netdev":           {"github.com/vishvananda/netlink"},
		"internal/dataplane":        {"github.com/cilium/ebpf", "internal/srpolicy", "internal/netdev"},
		"internal/slowpath":         {"gtpu", "internal/logevent"},
		"internal/logevent":         {"log/slog"},
		"internal/session":          {"net/netip"},
		"internal/slice":            {"internal/session"},
		"internal/pfcp":             {"internal/session", "github.com/wmnsk/go-pfcp/ie"},
		"internal/pfcp/wire":        {"internal/session"},
		"internal/pfcp/request":     {"internal/pfcp/wire", "internal/session"},
		"internal/smf":              {"internal/session", "github.com/wmnsk/go-pfcp/ie"},
		"internal/upf":              {"internal/dataplane", "internal/pfcp", "internal/slice"},
		"internal/upf/usage":        {"internal/session"},
		"internal/agent":            {"internal/upf", "internal/dataplane", "internal/slowpath", "internal/netdev", "go.etcd.io/bbolt"},
		"internal/agent/desired":    {"internal/config"},
		"internal/agent/observed":   {"internal/agent/desired", "internal/bgp"},
		"internal/agent/plan":       {"internal/agent/desired", "internal/agent/observed"},
		"internal/agent/pods":       {"internal/agent/desired", "internal/dataplane"},
		"internal/agent/apply":      {"internal/agent/plan", "internal/agent/pods"},
		"internal/agent/store":      {"internal/agent/observed", "go.etcd.io/bbolt"},
		"internal/agent/pathmtu":    {"internal/dataplane", "internal/slowpath"},
		"internal/agent/punt":       {"internal/agent/pathmtu", "internal/slowpath"},
		"internal/api":              {"internal/agent", "internal/config", "internal/api/culvertv1"},
		"internal/api/culvertv1":    nil,
		"internal/model":            {"internal/config"},
		"internal/kube":             {"internal/config", "k8s.io/client-go/rest"},
		"internal/connectivity":     {"internal/probe", "internal/overlay"},
		"internal/overlay":          {"srv6"},
		"internal/lab/topology":     {"internal/lab/gtpulink"},
		"internal/lab/gtpulink":     {"internal/probe"},
		"internal/lab/instance":     {"internal/lab/topology"},
		"internal/lab/daemon":       {"internal/lab/instance"},
		"internal/lab/observe":      {"internal/lab/daemon"},
		"internal/lab/disturb":      {"internal/lab/observe"},
		"internal/lab/check":        {"internal/lab/disturb"},
		"internal/lab":              {"internal/config", "internal/probe", "github.com/vishvananda/netns"},
		"internal/probe":            {"net"},
		"internal/bench":            {"internal/config"},
		"internal/bench/catalog":    {"internal/bench/rig"},
		"internal/bench/cost":       {"internal/bench/catalog"},
		"internal/bench/functions":  {"internal/bench/cost"},
		"internal/bench/rig":        {"internal/bench/node"},
		"internal/bench/node":       {"internal/config"},
		"internal/bench/scale":      {"internal/bench/cost"},
		"internal/cli":              {"internal/api", "internal/agent"},
		"internal/testutil/netns":   {"github.com/vishvananda/netns"},
		"internal/cmdline":          {"internal/printer"},
		"internal/printer":          {"go.yaml.in/yaml/v3"},
		"internal/labcli":           {"internal/cmdline"},
		"cmd/culvert":               {"internal/cli"},
		"cmd/culvert-cni":           {"internal/cni"},
	}
	imports[pkg] = append(slices.Clone(imports[pkg]), imported)
	return imports
}
