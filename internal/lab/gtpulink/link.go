package gtpulink

import (
	"fmt"
	"net/netip"
)

// Container says which PDU Session Container a link sends (TS 38.415).
type Container string

// The containers: none, or one of the two PDU types.
const (
	NoContainer Container = ""
	Downlink    Container = "downlink"
	Uplink      Container = "uplink"
)

// Link is one tunnel with its device.
type Link struct {
	Device string `json:"device"`
	// TAP makes the device carry Ethernet frames; otherwise it is a TUN and
	// carries IP packets.
	TAP       bool     `json:"tap,omitempty"`
	MTU       int      `json:"mtu,omitempty"`       // 1400 unless set
	Addresses []string `json:"addresses,omitempty"` // set by the lab

	Local      netip.Addr `json:"local"`
	Remote     netip.Addr `json:"remote"`
	TEID       uint32     `json:"teid"`        // that we receive
	RemoteTEID uint32     `json:"remote_teid"` // that we send to

	Container Container `json:"container,omitempty"`
	QFI       uint8     `json:"qfi,omitempty"`
	RQI       bool      `json:"rqi,omitempty"` // downlink only

	// HopLimit is that of what is sent from Local: the system's unless set.
	// Links with the same Local agree on it.
	HopLimit int `json:"hop_limit,omitempty"`
}

// Validate says what is wrong with l, by field.
func (l *Link) Validate() error {
	switch {
	case l.Device == "" || len(l.Device) > 15:
		return fmt.Errorf("device: %q: give a name of 1 to 15 bytes", l.Device)
	case !l.Local.IsValid() || !l.Remote.IsValid():
		return fmt.Errorf("local, remote: %s: give both addresses", l.Device)
	case l.Local.Is4() != l.Remote.Is4():
		return fmt.Errorf("remote: %s: %v and local %v are of different families", l.Device, l.Remote, l.Local)
	case l.QFI > 63:
		return fmt.Errorf("qfi: %s: %d: it has 6 bits, 63 is the largest", l.Device, l.QFI)
	case l.RQI && l.Container != Downlink:
		return fmt.Errorf("rqi: %s: only a downlink container has one", l.Device)
	}
	switch l.Container {
	case NoContainer, Downlink, Uplink:
		return nil
	}
	return fmt.Errorf("container: %s: %q: use downlink or uplink, or leave it out", l.Device, l.Container)
}
