package agent

import (
	"errors"
	"strconv"
)

// userPlane sends what there is on a node that is a user plane function.
func (s scrape) userPlane() error {
	u, err := s.Agent.userPlane()
	if errors.Is(err, ErrNotUPF) {
		return nil
	}
	if err != nil {
		return err
	}
	s.pfcp(u)
	s.send(metricSessions, float64(u.upf.Len()))
	s.send(metricMaxSessions, float64(u.upf.Max()))
	for event, n := range u.upf.Stats().All() {
		s.send(metricUPF, float64(n), event)
	}
	s.send(metricBuffered, float64(u.upf.Stats().BufferedNow.Load()))
	s.send(metricBufferBytes, float64(u.upf.Stats().BufferedBytes.Load()))
	peers := map[string]int{"up": 0, "down": 0}
	for _, p := range u.upf.Peers() {
		peers[upOrDown(!p.Down)]++
	}
	for state, n := range peers {
		s.send(metricPeers, float64(n), state)
	}
	for _, p := range u.upf.Pools() {
		s.send(metricPoolUsed, float64(p.Used), p.Prefix.String())
		s.send(metricPoolSize, float64(p.Size), p.Prefix.String())
	}
	return s.sliceCounters()
}

func (s scrape) sliceCounters() error {
	list, err := s.Slices()
	for _, v := range list {
		s.send(metricSliceCount, float64(v.Sessions), v.Name)
		for direction, c := range map[string]Counter{"uplink": v.Uplink, "downlink": v.Downlink} {
			s.send(metricSlicePackets, float64(c.Packets), v.Name, direction)
			s.send(metricSliceBytes, float64(c.Bytes), v.Name, direction)
		}
	}
	return err
}

// pfcp sends what the N4 server counts.
func (s scrape) pfcp(u *userPlane) {
	associations := map[string]int{"up": 0, "down": 0}
	for _, a := range u.server.Associations() {
		associations[upOrDown(a.Up)]++
	}
	for state, n := range associations {
		s.send(metricAssociations, float64(n), state)
	}
	stats := u.server.Stats()
	for message, n := range stats.Received {
		s.send(metricReceived, float64(n), message)
	}
	for message, n := range stats.Sent {
		s.send(metricSent, float64(n), message)
	}
	for _, a := range stats.Answers {
		s.send(metricAnswers, float64(a.Count), a.Message, strconv.Itoa(int(a.Cause)))
	}
	s.send(metricPending, float64(stats.ReportsPending))
	for event, n := range map[string]uint64{
		"stranger": stats.Strangers, "unauthorised": stats.Unauthorised, "malformed": stats.Malformed,
		"repeated": stats.Repeated, "overflow": stats.Overflows, "unsent": stats.Unsent,
		"retransmission": stats.Retransmissions, "unanswered": stats.Unanswered, "unexpected": stats.Unexpected,
		"panic": stats.Panics, "association_lost": stats.AssociationsLost, "peer_restart": stats.PeerRestarts,
	} {
		s.send(metricPFCP, float64(n), event)
	}
}

func upOrDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}
