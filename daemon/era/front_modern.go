package era

type frontModern struct {
	Front
	offer Offer
}

func (frontModern) Era() Era { return Modern }
