package connectivity

import (
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/probe"
)

// arrived fails the row unless everything arrived.
func arrived(r *Row, a Answer) {
	count(r, a)
	switch {
	case a.Error != "":
		r.fail("%s", plain(a.Error))
	case a.Sent == 0:
		r.fail("nothing was sent")
	case a.Received < a.Sent:
		r.fail("%d of %d lost", a.Sent-a.Received, a.Sent)
	}
	if a.Corrupt > 0 {
		r.fail("%d came twice, or with other content", a.Corrupt)
	}
	if r.Result == Fail {
		icmp(r, a.Errors)
	}
}

func count(r *Row, a Answer) {
	r.Result, r.Sent, r.Received, r.Lost = Pass, a.Sent, a.Received, a.Sent-a.Received
}

// icmp adds the ICMP errors of routers and hosts to the row.
func icmp(r *Row, list []probe.ICMPError) {
	for _, e := range list {
		if e.MTU != 0 {
			r.say("%s from %v, MTU %d", e.Kind(), e.From, e.MTU)
			continue
		}
		r.say("%s from %v", e.Kind(), e.From)
	}
}

// plain rewrites an error of package net: it says what the sender observed.
func plain(text string) string {
	for _, known := range []struct{ end, words string }{
		{"i/o timeout", "no answer within 10 s"},
		{"connection refused", "connection refused: nobody serves there, or something rejects it"},
		{"no route to host", "no route to host: the address is not reached, or its node rejects it"},
		{"network is unreachable", "network is unreachable: the sender has no route"},
		{"connection reset by peer", "connection reset"},
	} {
		if strings.HasSuffix(text, known.end) {
			return known.words
		}
	}
	return text
}

// transferred is arrived, and adds the rate to the row.
func transferred(r *Row, a Answer) {
	arrived(r, a)
	if r.Result == Pass && a.Seconds > 0 {
		r.say("%.0f Mbit/s", float64(a.Received)*(1<<10)*8/1e6/a.Seconds)
	}
	if a.Again > 0 {
		r.say("%d segments sent again", a.Again)
	}
}

// served is arrived. For TCP to the ClusterIP, each pod behind the Service must also
// have answered.
func (f *field) served(r *Row, a Answer) {
	arrived(r, a)
	if r.Result == Fail && a.Received == 0 {
		at := r.From // a ClusterIP is translated there, a NodePort where it is
		if strings.Contains(r.Check, "NodePort") {
			at = r.To
		}
		r.say("does kube-proxy, or what stands for it, run on %s?", at)
	}
	if strings.HasSuffix(r.Check, "ClusterIP, "+string(TCP)) && r.Result == Pass {
		for _, at := range f.places {
			if !slices.Contains(a.Servers, at.name) {
				r.fail("no connection came to the pod on %s", at.name)
			}
		}
	}
}

// full fails the row unless packets of the path's MTU, as the sender knows it,
// arrive.
func full(r *Row, a Answer) {
	arrived(r, a)
	switch {
	case a.Error != "":
	case a.Received == 0 && a.Largest > 0:
		r.say("of %d octets none arrives, of %d they do: the path takes less than nodes believe; see the MTU of what is between them", a.MTU, a.Largest)
	case a.Received == 0 && r.Sent > 0:
		r.say("of %d octets, and small ones neither", a.MTU)
	case r.Result == Pass:
		r.say("%d octets", a.MTU)
	}
}

// beyond fails the row if packets above the MTU are lost without an error from the
// sender's own interface or a Packet Too Big.
func beyond(r *Row, a Answer) {
	count(r, a)
	r.Lost = 0
	tooBig := slices.ContainsFunc(a.Errors, func(e probe.ICMPError) bool { return e.Kind() == probe.TooBig })
	switch {
	case a.Error != "":
		r.fail("%s", plain(a.Error))
	case tooBig:
		icmp(r, a.Errors)
	case a.Sent == 0 && a.TooLong > 0:
		r.say("the sender's own interface refuses them")
	case a.Received < a.Sent:
		r.Lost = a.Sent - a.Received
		r.fail("lost, and nobody says Packet Too Big")
		icmp(r, a.Errors)
	default:
		r.say("they arrive: the path carries larger packets than the pod's MTU allows")
	}
}
