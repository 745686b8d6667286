// Package restart is `culvert bench restart`: what an SMF notices when a user plane function
// with many sessions is killed and started again at once.
//
// An SMF sets up the sessions as Open5GS does. Then an asker (ask.go) sends heartbeats and
// modifications, from the start on, and notes when the answers come.
package restart
