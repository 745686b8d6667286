package bgp

import (
	"net"
	_ "unsafe" // for go:linkname

	"github.com/osrg/gobgp/v4/pkg/server"
)

// GoBGP 4 waits 1.5 to 2 s before it connects for the first time, whatever it is
// told (fsm.go, minConnectRetryInterval), and takes connections from its own
// listeners only. These two are what its listeners do with one. Should GoBGP
// rename them, this package does not link any more.

//go:linkname passConn github.com/osrg/gobgp/v4/pkg/server.(*BgpServer).passConnToPeer
func passConn(*server.BgpServer, net.Conn)

//go:linkname inServer github.com/osrg/gobgp/v4/pkg/server.(*BgpServer).mgmtOperation
func inServer(s *server.BgpServer, f func() error, checkActive bool) error

// handOver gives GoBGP a connection to one of its peers.
func handOver(s *server.BgpServer, c net.Conn) error {
	return inServer(s, func() error {
		passConn(s, c)
		return nil
	}, true)
}
