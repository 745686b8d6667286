package fuzzing_test

import (
	"bytes"
	"testing"

	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/testutil/fuzzing"
)

func TestSeedDecides(t *testing.T) {
	frames := func(seed uint64) []byte {
		s := fuzzing.New(seed)
		n, err := s.Network()
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for range 50 {
			frame := s.Frame(&n)
			all = append(all, fuzzing.Mutate(frame, s.Mutations(len(frame)))...)
			all = append(all, s.Noise()...)
		}
		return all
	}
	if !bytes.Equal(frames(7), frames(7)) {
		t.Error("the same seed made something else")
	}
	if bytes.Equal(frames(7), frames(8)) {
		t.Error("another seed made the same")
	}
}

// TestEverythingIsReached: the frames come to every end that the model knows,
// so that a comparison of them means something.
func TestEverythingIsReached(t *testing.T) {
	const networks, frames = 160, 1500
	reached, clamped := map[model.Reason]int{}, 0
	for seed := range uint64(networks) {
		s := fuzzing.New(seed)
		n, err := s.Network()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		m, err := model.New(n)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		n.MSSClamp = false
		plain, err := model.New(n)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range frames {
			frame := s.Frame(&n)
			frame = fuzzing.Mutate(frame, s.Mutations(len(frame)))
			ifindex := fuzzing.Ports[s.IntN(4)].Ifindex
			r := m.Run(frame, ifindex)
			reached[r.Reason]++
			if !bytes.Equal(r.Out, plain.Run(frame, ifindex).Out) {
				clamped++
			}
		}
	}
	for _, r := range []model.Reason{model.Forwarded, model.Passed, model.SlowPath, model.Replied, model.SRDomainEdge,
		model.HopLimit, model.SRHMalformed, model.SegmentsLeft, model.UpperLayer, model.RoutingType, model.ExtensionChain,
		model.IPv6Malformed, model.IPv4Malformed, model.InnerMalformed, model.ECN, model.UDPMalformed, model.GTPUVersion,
		model.GTPULength, model.GTPUExtension, model.GTPUMessage, model.TEIDUnknown, model.EchoFromSelf, model.PDUType,
		model.NoRoute, model.NoNeighbour, model.TooBig, model.NoPDR, model.FARDrop, model.GateClosed, model.BufferFull, model.UESource,
		model.UEToUE, model.UEToCore, model.QuotaUsedUp, model.NoRole, model.NoPeer, model.NotForHost, model.Martian,
		model.Fragment, model.NATProtocol, model.NATPorts, model.NATNoMapping, model.NATBehind, model.Tags} {
		if reached[r] == 0 {
			t.Errorf("%s: not once", r)
		}
	}
	if clamped < 50 {
		t.Errorf("an MSS was made less %d times", clamped)
	}
	t.Logf("an MSS was made less %d times", clamped)
	if drops := networks*frames - reached[model.Forwarded] - reached[model.Passed]; drops > networks*frames*3/4 {
		t.Errorf("%d of %d frames end early", drops, networks*frames)
	}
}
