package traffic

import "github.com/culvert-net/culvert/internal/dataplane/trafficrun"

// follow names the checksums that change with a place. A UDP checksum around
// covers the place and the checksums inside that follow it, each of which takes
// the change out once.
func (f *frame) follow(p *trafficrun.Place) {
	at := int(p.Offset)
	inside := 0
	// In the inner IP header a place is counted by it, or by the pseudo-header.
	inInnerIP := f.innerUDP > 0 && at >= f.innerUDP-6-lenIPv6 && at < f.innerUDP-6
	if f.innerIP > 0 {
		inInnerIP = at >= f.innerIP-10 && at < f.innerIP+10
	}
	switch {
	case inInnerIP:
		if f.innerIP > 0 {
			p.IPChecksum = uint32(f.innerIP)
			inside++
		}
		fallthrough
	case f.innerUDP > 0 && at >= f.innerUDP-6:
		if f.innerUDP > 0 {
			p.UDPChecksum = uint32(f.innerUDP)
			inside++
		}
	case f.outerIP > 0 && at < f.outerIP+10:
		p.IPChecksum = uint32(f.outerIP)
	}
	if f.outerUDP > 0 && inside != 1 {
		p.OuterChecksum, p.OuterAdds = uint32(f.outerUDP), inside > 1
	}
}
