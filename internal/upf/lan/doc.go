// Package lan knows what Ethernet sessions share: the links of N6, on which frames
// may be for all sessions (floods), and the hosts behind the UEs.
//
// Links.Run needs a goroutine. All methods may be called from
// any goroutine.
package lan
