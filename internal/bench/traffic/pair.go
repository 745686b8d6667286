package traffic

// Method is how packets are sent.
type Method string

// The methods. Auto is live frames where they can be had, else AF_PACKET.
const (
	Auto   Method = ""
	Live   Method = "live"   // made and sent by an XDP program in the kernel
	Packet Method = "packet" // made here, sent by AF_PACKET
)

// Port is an interface.
type Port struct {
	Namespace string `json:"namespace,omitempty"` // path of a network namespace; "": ours
	Interface string `json:"interface"`
}

// Options say between which interfaces the device is, and how it is measured.
type Options struct {
	TX, RX Port
	CPU    int // that sends
	Method Method
	// Expect is what must come out of the device. Without Outer.Kind and Inner it is what is sent.
	// Lengths, flows and UEs are always as sent.
	Expect *Template
	Seed   uint64 // of random orders
	// CheckEvery is how many packets there are to one that is checked whole; a
	// power of two, default 1024.
	CheckEvery int
	// With is a pair that this one is used together with (see Together): they may
	// share interfaces. It must stay open for as long as this one is.
	With *Pair
	// Watch are processes whose CPU time and memory the outcome has, by name.
	Watch map[string]int
}
