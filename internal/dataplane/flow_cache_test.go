package dataplane

import (
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/packet"
)

// changeCached changes what the cache of flows has. It returns how many flows that are.
func (r *rig) changeCached(t *testing.T, change func(*abi.CachedFlow)) (n int) {
	t.Helper()
	m := r.d.maps[abi.MapFlowCache]
	var key uint32
	var set abi.CachedFlows
	for it := m.Iterate(); it.Next(&key, &set); {
		for i := range set.Way {
			if set.Way[i] != (abi.CachedFlow{}) {
				n++
				change(&set.Way[i])
			}
		}
		must(t, m.Put(&key, &set))
	}
	return n
}

// sender sends what a pod or an uplink gets through a program, and demands an outcome.
func sender(t *testing.T, r *rig) func(name, program string, port int, in layers, want string) {
	programs := podProgramsOf(t, r.d)
	return func(name, program string, port int, in layers, want string) {
		t.Helper()
		before := r.counters(t)
		runOn(t, programs[program], frameAt(t, port, in), port)
		if got := since(before, r.counters(t)); got["outcome "+want].Packets != 1 {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}

// TestFlowCache: of a flow that the table has forgotten, the cache alone lets packets pass; of
// another it lets none, and not once rules or time have changed. The peer takes nothing that it
// has not asked for.
func TestFlowCache(t *testing.T) {
	const passes, dropped = "forwarded", "policy_ingress"
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		isolatePeer(t, r)
		sends := sender(t, r)
		own, other4, own6, other6 := ip4("10.1.1.1", "10.2.2.2"), ip4("10.2.2.2", "10.1.1.1"), ip6("fd01::1", "fd02::2"), ip6("fd02::2", "fd01::1")
		udp := func(from, to uint16) packet.UDP { return packet.UDP{Sport: from, Dport: to} }
		again := func() {
			must(t, r.d.Pods.Delete(rowPeer))
			must(t, r.d.Pods.Put(rowPods[rowPeer]))
			isolatePeer(t, r)
		}
		for _, row := range []struct {
			name   string
			change func()
			port   int
			in     layers
			want   string
		}{
			{"an answer", nil, rowPod, of(other4, udp(6, 5)), passes},
			{"an answer, IPv6", nil, rowPod, of(other6, udp(6, 5)), passes},
			{"from another port", nil, rowPod, of(other4, udp(7, 5)), dropped},
			{"to another port", nil, rowPod, of(other4, udp(6, 7)), dropped},
			{"ports in the other order", nil, rowPod, of(other4, udp(5, 6)), dropped},
			{"from another port, IPv6", nil, rowPod, of(other6, udp(7, 5)), dropped},
			{"another protocol", nil, rowPod, of(other4, packet.Payload{Proto: 132, Data: packet.Hex{0, 6, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0}}), dropped},
			{"another remote", nil, rowUplink, of(ip6(other, dt4), ip4("10.11.0.1", "10.1.1.1"), udp(6, 5)), dropped},
			{"a little later", func() { r.changeCached(t, func(f *abi.CachedFlow) { *f = agedFlow(*f, 5) }) }, rowPod, of(other4, udp(6, 5)), passes},
			{"much later", func() { r.changeCached(t, func(f *abi.CachedFlow) { *f = agedFlow(*f, 30) }) }, rowPod, of(other4, udp(6, 5)), dropped},
			{"halves of two", func() { r.changeCached(t, func(f *abi.CachedFlow) { f.State-- }) }, rowPod, of(other4, udp(6, 5)), dropped},
			{"other rules", func() { must(t, r.d.Pods.Renew()) }, rowPod, of(other4, udp(6, 5)), dropped},
			{"another pod", again, rowPod, of(other4, udp(6, 5)), dropped},
		} {
			must(t, empty(r.d.maps[abi.MapFlowCache]))
			sends(row.name+": asks", abi.ProgCulvertPod, rowPeer, of(own, udp(5, 6)), passes)
			sends(row.name+": the first answer", abi.ProgCulvertPod, rowPod, of(other4, udp(6, 5)), passes)
			sends(row.name+": asks, IPv6", abi.ProgCulvertPod, rowPeer, of(own6, udp(5, 6)), passes)
			sends(row.name+": the first answer, IPv6", abi.ProgCulvertPod, rowPod, of(other6, udp(6, 5)), passes)
			must(t, empty(r.d.maps[abi.MapNetpolFlow]))
			if row.change != nil {
				row.change()
			}
			program := abi.ProgCulvertPod
			if row.port == rowUplink {
				program = abi.ProgCulvertUplink
			}
			sends(row.name, program, row.port, row.in, row.want)
		}
	})
}

// TestFlowCacheAnswers: where the table has forgotten a flow that the cache has, because others
// needed the room, its first answers pass all the same. Others do not.
func TestFlowCacheAnswers(t *testing.T) {
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		isolatePeer(t, r)
		sends := sender(t, r)
		udp := func(from, to uint16) packet.UDP { return packet.UDP{Sport: from, Dport: to} }
		for name, way := range map[string][2]packet.Layer{
			"IPv4": {ip4("10.1.1.1", "10.2.2.2"), ip4("10.2.2.2", "10.1.1.1")},
			"IPv6": {ip6("fd01::1", "fd02::2"), ip6("fd02::2", "fd01::1")},
		} {
			sends(name+": asks", abi.ProgCulvertPod, rowPeer, of(way[0], udp(5, 6)), "forwarded")
			must(t, empty(r.d.maps[abi.MapNetpolFlow]))
			sends(name+": asks again", abi.ProgCulvertPod, rowPeer, of(way[0], udp(5, 6)), "forwarded")
			sends(name+": an answer", abi.ProgCulvertPod, rowPod, of(way[1], udp(6, 5)), "forwarded")
			sends(name+": to another port", abi.ProgCulvertPod, rowPod, of(way[1], udp(6, 7)), "policy_ingress")
			must(t, r.d.Pods.Renew())
			sends(name+": by other rules", abi.ProgCulvertPod, rowPod, of(way[1], udp(6, 5)), "policy_ingress")
		}
	})
}

// agedFlow is a flow of the cache that came so many ticks earlier (TICK_SHIFT).
func agedFlow(f abi.CachedFlow, ticks uint64) abi.CachedFlow {
	print := f.Sum ^ f.State
	f.State = f.State&^0xffff | uint64(uint16(f.State)-uint16(ticks))
	f.Sum = print ^ f.State
	return f
}

// answered says which answers a flow of the cache has, and until which tick.
func answered(f abi.CachedFlow) (untranslated, allowed bool, until uint16) {
	has := func(at abi.FlowAnswerAt) bool { return f.State>>at&0x400000 != 0 }
	return has(abi.FlowAnswerAtFLOW_UNTRANSLATED), has(abi.FlowAnswerAtFLOW_ALLOWED), uint16(f.State)
}

// TestFlowCacheAnswersOfTwo: a flow that conntrack does not translate is not allowed for that, nor the other way
// round. The second answer does not extend the time for which the first counts.
func TestFlowCacheAnswersOfTwo(t *testing.T) {
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		isolatePeer(t, r)
		sends := sender(t, r)
		translates := func(generation uint64) {
			must(t, r.d.maps[abi.MapOverlay].Put(uint32(0), &abi.Overlay{Translates: 1, Generation: generation}))
		}
		only := func() (f abi.CachedFlow) {
			t.Helper()
			if n := r.changeCached(t, func(at *abi.CachedFlow) { f = *at }); n != 1 {
				t.Fatalf("%d flows are in the cache, want 1", n)
			}
			return f
		}
		udp := packet.UDP{Sport: 5, Dport: 6}
		asks, refused := of(ip4("10.1.1.1", "10.2.2.2"), udp), of(ip6(other, dt4), ip4("10.11.0.1", "10.1.1.1"), udp)

		translates(1)
		for _, name := range []string{"first", "second"} {
			sends(name+" packet that no rule allows", abi.ProgCulvertUplink, rowUplink, refused, "policy_ingress")
			if untranslated, allowed, _ := answered(only()); !untranslated || allowed {
				t.Errorf("%s packet: untranslated %t, allowed %t; want only the former", name, untranslated, allowed)
			}
		}
		must(t, empty(r.d.maps[abi.MapFlowCache]))
		must(t, r.d.maps[abi.MapOverlay].Put(uint32(0), &abi.Overlay{}))
		sends("no kernel translates", abi.ProgCulvertPod, rowPeer, asks, "forwarded")
		if untranslated, allowed, _ := answered(only()); untranslated || !allowed {
			t.Errorf("no kernel translates: untranslated %t, allowed %t; want only the latter", untranslated, allowed)
		}
		r.changeCached(t, func(f *abi.CachedFlow) { *f = agedFlow(*f, 5) })
		_, _, until := answered(only())
		translates(2)
		sends("the kernel translates", abi.ProgCulvertPod, rowPeer, asks, "forwarded")
		before := only()
		if untranslated, allowed, at := answered(before); !untranslated || !allowed || at != until {
			t.Errorf("the kernel translates: untranslated %t, allowed %t, until %d; want both, until %d", untranslated, allowed, at, until)
		}
		sends("nothing changed", abi.ProgCulvertPod, rowPeer, asks, "forwarded")
		if only() != before {
			t.Errorf("nothing changed, and the cache has %+v, want %+v", only(), before)
		}
		translates(3)
		sends("another flow may be translated", abi.ProgCulvertPod, rowPeer, asks, "forwarded")
		if only().State == before.State {
			t.Error("another flow may be translated, and nobody was asked again")
		}
	})
}

// TestFlowCacheTells: the table hears that a flow goes on, and at once that a connection closes.
func TestFlowCacheTells(t *testing.T) {
	syn, ack, fin := uint8(2), uint8(0x10), uint8(0x11)
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		isolatePeer(t, r)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		sends := func(flags *uint8) {
			runOn(t, program, frameAt(t, rowPod, of(ip4("10.2.2.2", "10.1.1.1"), packet.TCP{Sport: 1000, Dport: 80, Flags: flags})), rowPod)
		}
		flow := func() abi.PodFlow {
			_, bucket, way := r.flowOf(t, "10.2.2.2", 80, 1000)
			return bucket.Flow[way]
		}
		sends(&syn)
		if n := r.changeCached(t, func(*abi.CachedFlow) {}); n != 0 {
			t.Errorf("after a SYN %d flows are in the cache", n)
		}
		sends(&ack)
		key, bucket, way := r.flowOf(t, "10.2.2.2", 80, 1000)
		bucket.Flow[way].Seen -= 100
		must(t, r.d.maps[abi.MapNetpolFlow].Put(&key, &bucket))
		sends(&ack)
		if got := flow(); got != bucket.Flow[way] {
			t.Errorf("a packet of the cache made the flow %+v, want %+v", got, bucket.Flow[way])
		}
		if n := r.changeCached(t, func(f *abi.CachedFlow) { *f = agedFlow(*f, 30) }); n != 1 {
			t.Errorf("%d flows are in the cache, want 1", n)
		}
		sends(&ack)
		if got := flow(); got.Seen < bucket.Flow[way].Seen+100 || got.Closing != 0 {
			t.Errorf("a packet behind the cache's time made the flow %+v", got)
		}
		sends(&fin)
		if got := flow(); got.Closing != 1 {
			t.Errorf("a FIN made the flow %+v", got)
		}
	})
}
