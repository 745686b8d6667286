package topology

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Program is one of others: a network function of a mobile core, its database, or a
// simulator of a RAN.
type Program struct {
	Name string `json:"name"` // one of its kind in the lab
	// Commands are what it may run as: the first whose program is in the folder of
	// --core, or is installed. DirWord in an argument stands for the node's directory.
	Commands [][]string `json:"commands"`
	// It is ready when it listens by TCP there, and when its log says so.
	Listens netip.AddrPort `json:"listens,omitzero"`
	Says    string         `json:"says,omitempty"`
	// Later: an event starts it.
	Later bool `json:"later,omitempty"`

	Node *Node `json:"-"` // that it runs in
}

// DirWord stands for the node's directory in Files and in arguments of Programs.
const DirWord = "{dir}"

// Subscribers are told to a core by the interface that it has for that.
type Subscribers struct {
	// Free5GC is where its web console listens.
	Free5GC netip.AddrPort `json:"free5gc"`
	PLMN    string         `json:"plmn"` // MCC and MNC
	Key     string         `json:"key"`  // of all, hexadecimal
	OPc     string         `json:"opc"`
	List    []Subscriber   `json:"list"`
}

// Subscriber is who may use a core.
type Subscriber struct {
	IMSI     string         `json:"imsi"`
	Sessions []Subscription `json:"sessions"`
}

// Subscription is what a subscriber may have of one slice.
type Subscription struct {
	SST  int    `json:"sst"`
	SD   string `json:"sd"`
	DNN  string `json:"dnn"`
	IPv4 string `json:"ipv4,omitempty"` // the address, unless the SMF chooses it
	// Uplink and Downlink are the AMBR of the session, as in "10 Mbps".
	Uplink   string `json:"uplink"`
	Downlink string `json:"downlink"`
	// Flow is a QoS flow of its own.
	Flow *Flow `json:"flow,omitempty"`
	// Charging is Offline or Online, of the whole slice; Quota is in octets.
	Charging string `json:"charging,omitempty"`
	Quota    string `json:"quota,omitempty"`
}

// Flow is a QoS flow for what a filter matches.
type Flow struct {
	Filter   string `json:"filter"` // an address or prefix in the data network
	FiveQI   int    `json:"5qi"`
	Uplink   string `json:"uplink"` // MBR
	Downlink string `json:"downlink"`
}

// ProgramOf returns the one of a lab that is called name, or nil.
func ProgramOf(t *Topology, name string) *Program {
	for _, n := range t.Nodes {
		for _, p := range n.Programs {
			if p.Name == name {
				return p
			}
		}
	}
	return nil
}

// OfOthers says whether the lab runs programs of others.
func OfOthers(t *Topology) bool {
	return slices.ContainsFunc(t.Nodes, func(n *Node) bool { return len(n.Programs) > 0 })
}

// programs wants those of a node to be well-formed.
func (v validator) programs(n *Node, seen map[string]bool) {
	for i, p := range n.Programs {
		in := v.in("programs[%d]", i)
		in.name(p.Name, seen)
		in.want(len(p.Commands) > 0 && !slices.ContainsFunc(p.Commands, func(c []string) bool { return len(c) == 0 || c[0] == "" || strings.Contains(c[0], "/") }),
			"commands: %s: give at least one, each of which begins with the name of a program", p.Name)
		p.Node = n
	}
	for name := range n.Files {
		v.want(name != "" && !strings.Contains(name, "/"), "files: %q: give a name without a slash", name)
	}
	if s := n.Subscribers; s != nil {
		v.in("subscribers").subscribers(s)
	}
}

var (
	imsiForm = regexp.MustCompile(`^[0-9]{15}$`)
	keyForm  = regexp.MustCompile(`^[0-9a-fA-F]{32}$`)
	sdForm   = regexp.MustCompile(`^[0-9a-fA-F]{6}$`)
)

func (v validator) subscribers(s *Subscribers) {
	v.want(s.Free5GC.IsValid(), "free5gc: give where its web console listens, as in 127.0.0.1:5000")
	v.want(s.PLMN != "", "plmn: missing")
	v.want(keyForm.MatchString(s.Key) && keyForm.MatchString(s.OPc), "key, opc: give 32 hexadecimal digits each")
	for i, x := range s.List {
		in := v.in("list[%d]", i)
		in.want(imsiForm.MatchString(x.IMSI) && strings.HasPrefix(x.IMSI, s.PLMN), "imsi: %q: give 15 digits that begin with %s", x.IMSI, s.PLMN)
		in.want(len(x.Sessions) > 0, "sessions: none")
		for _, y := range x.Sessions {
			in.want(sdForm.MatchString(y.SD), "sd: %q: give 6 hexadecimal digits", y.SD)
			in.want(y.DNN != "" && y.Uplink != "" && y.Downlink != "", "dnn, uplink, downlink: missing")
			in.want(slices.Contains([]string{"", "Offline", "Online"}, y.Charging), "charging: %q: use Offline or Online", y.Charging)
		}
	}
}

// programOf wants an event to name a program.
func (v validator) programOf(e *Event) {
	v.want(ProgramOf(v.t, e.Program) != nil, "program: no program is called %q", e.Program)
}
