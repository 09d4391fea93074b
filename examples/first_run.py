"""A first run: learn to open a combination lock from states alone, then use the policy. Takes about a minute.

python examples/first_run.py
"""

import gymnasium

import hyrlo


def main(horizon: int = 10, out: str = "runs/first") -> float:
    # A lock with 10 actions: each step has one right action, and only the last one pays. The data are states, nothing else.
    lock = hyrlo.make("lock", horizon=horizon)
    states = lock.behaviour_data(seed=0, episodes=2000)

    # Forward: learn to reach the states of the data. Backward: improve from there.
    run = hyrlo.train("foobar", lock, states, seed=0, out=out)
    print(f"the lock opens in {run.result['success_rate']:.0%} of the episodes")
    print(f"learned from {run.result['episodes']:,} training episodes; the curve is in {out}/curve.png")

    # The agent takes and gives what the environment does, here of the same lock in Gymnasium. It counts the steps itself.
    env = gymnasium.make("hyrlo/CombinationLock-v0", horizon=horizon)
    observation, _ = env.reset(seed=1)
    run.agent.reset()
    over = False
    while not over:
        action = run.agent.predict(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        print(f"action {action}, reward {reward:g}")
        over = terminated or truncated
    return float(reward)


if __name__ == "__main__":
    main()
