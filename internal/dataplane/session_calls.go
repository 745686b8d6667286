package dataplane

// PutSession is Sessions.Put.
func (d *DataPlane) PutSession(s Session) error { return d.Sessions.Put(s) }

// RemoveSession is Sessions.Remove.
func (d *DataPlane) RemoveSession(id uint64, done func([]RuleUsage, error)) error {
	return d.Sessions.Remove(id, done)
}

// DropSession is Sessions.Drop.
func (d *DataPlane) DropSession(id uint64) error { return d.Sessions.Drop(id) }

// SessionUsage is Sessions.Usage.
func (d *DataPlane) SessionUsage(id uint64) ([]RuleUsage, error) { return d.Sessions.Usage(id) }

// SetRuleLimits is Sessions.SetLimits.
func (d *DataPlane) SetRuleLimits(id uint64, rule uint16, l RuleLimits) error {
	return d.Sessions.SetLimits(id, rule, l)
}

// NewTEID is Sessions.NewTEID.
func (d *DataPlane) NewTEID() (uint32, error) { return d.Sessions.NewTEID() }

// TakeTEID is Sessions.TakeTEID.
func (d *DataPlane) TakeTEID(teid uint32) error { return d.Sessions.TakeTEID(teid) }

// FreeTEID is Sessions.FreeTEID.
func (d *DataPlane) FreeTEID(teid uint32) { d.Sessions.FreeTEID(teid) }
