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
	// It is ready when it listens by TCP there, and when its log says so: Times, once unless set.
	Listens netip.AddrPort `json:"listens,omitzero"`
	Says    string         `json:"says,omitempty"`
	Times   int            `json:"times,omitempty"`
	// Tries is how often it is started anew where it is not ready in time: once unless set.
	Tries int `json:"tries,omitempty"`
	// Later: an event starts it. Once: it ends by itself, and its exit status is that of the event.
	Later bool `json:"later,omitempty"`
	Once  bool `json:"once,omitempty"`

	Node *Node `json:"-"` // that it runs in
}

// DirWord stands for the node's directory in Files and in arguments of Programs, also of checks.
const DirWord = "{dir}"

// Subscribers are told to a core by the interface that it has for that.
type Subscribers struct {
	// Free5GC is where its web console listens, Open5GS where its database does.
	Free5GC netip.AddrPort `json:"free5gc,omitzero"`
	Open5GS netip.AddrPort `json:"open5gs,omitzero"`
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
	SST int    `json:"sst"`
	SD  string `json:"sd"`
	DNN string `json:"dnn"`
	// Type is IPv4 unless set: IPv6 or IPv4v6, of Open5GS.
	Type string `json:"type,omitempty"`
	// IPv4 is the address and IPv6 an address of the prefix, unless the SMF chooses them.
	IPv4 netip.Addr `json:"ipv4,omitzero"`
	IPv6 netip.Addr `json:"ipv6,omitzero"`
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
		in.want(p.Tries >= 0 && (p.Tries == 0 || p.Listens.IsValid() || p.Says != ""), "tries: %s: give a positive number, of a program that is waited for", p.Name)
		in.want(p.Times >= 0 && (p.Times == 0 || p.Says != ""), "times: %s: give a positive number, and what it says", p.Name)
		in.want(!p.Once || p.Later && !p.Listens.IsValid() && p.Says == "", "once: %s: it is started by events only (later), and is not waited for", p.Name)
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
	rateForm = regexp.MustCompile(`^[0-9]+ [KMG]?bps$`)
)

func (v validator) subscribers(s *Subscribers) {
	v.want(s.Free5GC.IsValid() != s.Open5GS.IsValid(), "free5gc, open5gs: give where its web console listens, as in 127.0.0.1:5000, or its database, as in 127.0.0.1:27017")
	v.want(s.PLMN != "", "plmn: missing")
	v.want(keyForm.MatchString(s.Key) && keyForm.MatchString(s.OPc), "key, opc: give 32 hexadecimal digits each")
	for i, x := range s.List {
		in := v.in("list[%d]", i)
		in.want(imsiForm.MatchString(x.IMSI) && strings.HasPrefix(x.IMSI, s.PLMN), "imsi: %q: give 15 digits that begin with %s", x.IMSI, s.PLMN)
		in.want(len(x.Sessions) > 0, "sessions: none")
		for _, y := range x.Sessions {
			in.subscription(s, &y)
		}
	}
}

func (v validator) subscription(s *Subscribers, y *Subscription) {
	v.want(sdForm.MatchString(y.SD), "sd: %q: give 6 hexadecimal digits", y.SD)
	v.want(y.DNN != "", "dnn: missing")
	rates := []string{y.Uplink, y.Downlink}
	if y.Flow != nil {
		rates = append(rates, y.Flow.Uplink, y.Flow.Downlink)
	}
	v.want(!slices.ContainsFunc(rates, func(r string) bool { return !rateForm.MatchString(r) }), "uplink, downlink: %q: give a number and bps, Kbps, Mbps or Gbps", rates)
	v.want(slices.Contains([]string{"", "Offline", "Online"}, y.Charging), "charging: %q: use Offline or Online", y.Charging)
	v.want(slices.Contains([]string{"", "IPv4", "IPv6", "IPv4v6"}, y.Type), "type: %q: use IPv4, IPv6 or IPv4v6", y.Type)
	v.want(!y.IPv4.IsValid() || y.IPv4.Is4() && y.Type != "IPv6", "ipv4: %v: give an IPv4 address, of a session that has one", y.IPv4)
	v.want(!y.IPv6.IsValid() || y.IPv6.Is6() && strings.HasSuffix(y.Type, "v6"), "ipv6: %v: give an IPv6 address, of a session that has one", y.IPv6)
	v.want(s.Open5GS.IsValid() && y.Charging == "" && y.Quota == "" || s.Free5GC.IsValid() && (y.Type == "" || y.Type == "IPv4"),
		"type, charging: free5GC has sessions of IPv4, and Open5GS charges nobody")
}

// programOf wants an event to name a program.
func (v validator) programOf(e *Event) {
	v.want(ProgramOf(v.t, e.Program) != nil, "program: no program is called %q", e.Program)
}
