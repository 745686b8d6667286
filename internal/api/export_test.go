package api

import "net"

// Addresses are where the server listens, in the order socket, TCP.
func (s *Server) Addresses() []net.Addr {
	out := make([]net.Addr, len(s.servers))
	for i, v := range s.servers {
		out[i] = v.listener.Addr()
	}
	return out
}
