// Package upf is the user plane of the N4 server: it turns the sessions of SMFs
// into what the data path holds, and keeps the promises of TS 29.244 about them.
//
// Each concept has a package, and UPF composes them:
//
//	store    owns sessions: the last word of the SMF, usage, the journal
//	rules    makes the data path's rules of a session: a pure function
//	usage    owns usage: measurement, reports, the limits of rules
//	buffer   owns the packets that are kept for idle UEs
//	path     owns GTP-U peers: Echo Requests, End Markers, duplicates
//	lan      owns links and hosts of Ethernet sessions
//	pool     owns UE addresses
//	codec    encodes sessions; journal writes records; wheel has timers;
//	stats    has counters
//
// The files here are steps between them: sessions.go (the verbs of the N4 server),
// install.go (what the data path gets), report.go (reports to SMFs), kept.go
// (packets of idle UEs), config.go, restore.go, view.go. DataPath, in datapath.go,
// is all that the UPF needs of the data path.
//
// The user
//
//  1. calls New, which reads the sessions of an earlier process;
//  2. calls SetConfig, and then Reserve: from then on the N4 server may ask for any session;
//  3. calls Start with the N4 server, and Run in a goroutine;
//  4. calls Restore, before it sweeps the data path, changes the configuration again, or
//     copies its tables; who does not need answers meanwhile calls it in place of Reserve;
//  5. calls Close when Run has returned.
//
// Locks, in the order in which they are taken: installer.changing (for reading by
// whoever installs a session, for writing by SetConfig), the lock of a session's
// store.Entry, and the locks inside the packages, which call nobody. Reports leave
// with no lock held. Run starts a goroutine for each: data path events, timers,
// journal, floods, hosts, paths. Sending what was kept (drain) has one for each
// session that wakes up.
package upf
