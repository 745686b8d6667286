package observe

// What the commands show, as far as labs look.
type counterView struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

type outcomeView struct {
	Reason string `json:"reason"`
	Drop   bool   `json:"drop"`
	counterView
}

type countersView struct {
	Outcomes []outcomeView `json:"outcomes"`
	SIDs     []struct {
		Key string `json:"key"`
		counterView
	} `json:"sids"`
	Policies []policyView `json:"policies"`
}

type policyView struct {
	Key string `json:"key"`
	counterView
	Lists []counterView `json:"lists"`
}

type sliceView struct {
	Name     string      `json:"name"`
	Uplink   counterView `json:"uplink"`
	Downlink counterView `json:"downlink"`
}

// direction is the packets of one.
func (s sliceView) direction(name string) uint64 {
	if name == "uplink" {
		return s.Uplink.Packets
	}
	return s.Downlink.Packets
}
