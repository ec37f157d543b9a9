package era

type backModern struct{ Back }

func (backModern) Era() Era { return Modern }
