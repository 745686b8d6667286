// Package disturb does things to a laboratory that is up, mostly under traffic: it
// kills and upgrades daemons, cuts links and power, changes configurations, paths,
// pods and variants. Do runs a list of events, During runs it while traffic flows.
package disturb
